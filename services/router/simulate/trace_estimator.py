"""Prices the requests of a recorded trace from the columns of the request alone, learning as they end."""

from dataclasses import dataclass
from math import exp, inf, log

from services.router.simulate.nested_means import NestedMeans


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """What a trace tells of a request before it runs. Lengths are of the prompts; a trace may lack any column."""

    model: str
    predict_type: str = ""
    step_count: float = 0.0
    image_count: float = 1.0
    lora_count: float = 0.0
    prompt_length: float = 0.0
    negative_prompt_length: float = 0.0


class TraceEstimator:
    """`estimate` says what `observe` has taught of requests like this one; `prior_s` before anything was observed.

    The size of the pictures, which decides most, is in no column: it shows only in what like requests took. So the
    estimate is the mean of the logarithm (durations are skewed) over nested groups: all, the model, its requests of the
    same work, those of about the same prompt.
    """

    def __init__(self, prior_s: float = 20.0) -> None:
        self._log_seconds = NestedMeans(log(prior_s))

    def estimate(self, request: TraceRequest) -> float:
        """Seconds, above 0."""
        return exp(self._log_seconds.mean(_path(request)))

    def observe(self, request: TraceRequest, seconds: float) -> None:
        """Learn what a request took; a duration that is none teaches nothing."""
        if 0.0 < seconds < inf:
            self._log_seconds.add(_path(request), log(seconds))


def _path(request: TraceRequest) -> tuple[object, ...]:
    work = (request.predict_type, request.step_count, request.image_count, request.lora_count)
    return (request.model, work, int(max(0.0, request.prompt_length) + 1).bit_length())
