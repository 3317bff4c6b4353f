"""How often a job's progress is worth an event."""

from triptych.v1.job_pb2 import Progress


class ProgressThrottle:
    """Lets the last step of a stage through at once, other progress at most every `interval_s` seconds.

    What comes too early is held, the newest only, and taken before the next event of another kind.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._passed_s = 0.0
        self._held: Progress | None = None

    def offer(self, progress: Progress, now_s: float, busy: bool) -> Progress | None:
        """The progress, if it is to be written now; while the writer is `busy` it never is, the last step excepted."""
        if progress.fraction < 1.0 and (busy or now_s < self._passed_s + self._interval_s):
            self._held = progress
            return None
        self._held = None
        self._passed_s = now_s
        return progress

    def take(self) -> Progress | None:
        """What is held, which is then no more."""
        held, self._held = self._held, None
        return held
