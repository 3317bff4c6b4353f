"""How far estimates are off, beside what is gained by knowing nothing, or the model alone."""

from collections.abc import Sequence
from statistics import median

from services.router.simulate.pricing import LearntPricing
from services.router.simulate.workload import SimulatedJob


def estimate_errors(jobs: Sequence[SimulatedJob]) -> dict[str, float]:
    """Median absolute errors in seconds, each job estimated from those before it alone.

    `learnt`: the estimator. `constant`: the mean of all so far. `model_mean`: that of the model's jobs so far, or of
    all where it is new.
    """
    pricing = LearntPricing()
    errors: dict[str, list[float]] = {"learnt": [], "constant": [], "model_mean": []}
    everything = _Mean()
    by_model: dict[str, _Mean] = {}
    for job in jobs:
        of_model = by_model.setdefault(job.model, _Mean())
        guesses = {
            "learnt": pricing.price(job).total_s,
            "constant": everything.value(job.service_s),
            "model_mean": of_model.value(everything.value(job.service_s)),
        }
        for name, guess in guesses.items():
            errors[name].append(abs(guess - job.service_s))
        pricing.observe(job)
        everything.add(job.service_s)
        of_model.add(job.service_s)
    return {name: round(median(found), 9) for name, found in errors.items()}


class _Mean:
    def __init__(self) -> None:
        self._sum = 0.0
        self._count = 0

    def value(self, otherwise: float) -> float:
        return self._sum / self._count if self._count else otherwise

    def add(self, value: float) -> None:
        self._sum += value
        self._count += 1
