"""What a fleet is asked to hold: "image p99 < 10s"."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from services.router.simulate.percentiles import percentile
from services.router.simulate.simulation import Outcome

_FORM = re.compile(
    r"(?P<kind>\S+)\s+(?P<rank>p\d{1,2}(\.\d+)?|max)\s*(?P<metric>latency|wait|delay|stretch)?"
    r"\s*<=?\s*(?P<limit>\d+(\.\d+)?)\s*(?P<unit>ms|s|min|h|x)?"
)
_UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "x": 1.0}


@dataclass(frozen=True, slots=True)
class Slo:
    """A bound on one figure of one kind of jobs. A job that is refused or fails has the worst value of all."""

    kind: str
    quantile: float
    metric: str
    limit: float
    text: str

    def measure(self, outcomes: Sequence[Outcome]) -> float:
        """The figure, in seconds (a stretch: times the job's own time). 0 if there is no such job."""
        values = [self._value(outcome) for outcome in outcomes if outcome.job.kind == self.kind]
        found = percentile(values, self.quantile)
        return 0.0 if found is None else found

    def met(self, outcomes: Sequence[Outcome]) -> bool:
        return self.measure(outcomes) < self.limit

    def _value(self, outcome: Outcome) -> float:
        if not outcome.succeeded or outcome.wait_s is None:
            return inf
        match self.metric:
            case "wait":
                return outcome.wait_s
            case "delay":
                return outcome.delay_s
            case "stretch":
                return outcome.delay_s / outcome.job.service_s if outcome.job.service_s else 0.0
            case _:
                return outcome.latency_s


def parse_slo(text: str) -> Slo:
    """`KIND pNN|max [latency|wait|delay|stretch] < NUMBER[ms|s|min|h|x]`.

    Latency, from arrival to end, if none is named. Raises `ValueError`.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ValueError(f'{text!r} is not like "image p99 < 10s" or "video p90 stretch < 3x"')
    metric, unit = found["metric"] or "latency", found["unit"]
    if unit is not None and (metric == "stretch") != (unit == "x"):
        raise ValueError(f"{text!r}: a {metric} is not measured in {unit}")
    quantile = 1.0 if found["rank"] == "max" else float(found["rank"][1:]) / 100
    return Slo(found["kind"], quantile, metric, float(found["limit"]) * _UNITS[unit or "s"], text.strip())
