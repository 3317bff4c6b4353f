"""When a preview of an output is wanted: what its job asks for, and no more often than anybody can look at them."""

from triptych.previews import interval_s
from triptych.v1.job_pb2 import PreviewPolicy


class PreviewPace:
    """Of one output. Times are seconds of one monotonic clock.

    Between the beginnings of two previews there are `spacing_s` at least, whatever the policy: steps can be quicker.
    """

    def __init__(self, policy: PreviewPolicy, spacing_s: float, now_s: float) -> None:
        self._policy = policy
        self._spacing_s = spacing_s
        self._due_s = now_s
        self._begun_s: float | None = None

    def due(self, step: int, now_s: float) -> bool:
        """Whether the policy asks for one now, after so many steps."""
        if self._policy.WhichOneof("interval") == "every_steps":
            return step % self._policy.every_steps == 0
        if now_s - self._due_s < interval_s(self._policy):
            return False
        self._due_s = now_s
        return True

    def too_soon(self, now_s: float) -> bool:
        """Whether one that is due has to be left out: the last was begun just now."""
        return self._begun_s is not None and now_s - self._begun_s < self._spacing_s

    def begin(self, now_s: float) -> None:
        """One is made now."""
        self._begun_s = now_s
