"""What both arms of a mixed load say: delays as measured and as simulated."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import mean, median

from bench.arrivals import KINDS, LONG, SHORT
from bench.delays import RESAMPLES, RUN_LENGTH, at_least, gain_interval, p99, p99_gain, relative_error
from bench.passage import Passage, Solo
from services.router.core.config import PolicyName
from services.router.simulate.settings import FleetSettings, PolicySettings
from services.router.simulate.simulation import simulate
from services.router.simulate.workload import SimulatedJob

BEFORE: PolicyName = "fcfs"
AFTER: PolicyName = "stretch"
Table = dict[str, dict[str, float]]
Delays = Mapping[PolicyName, Mapping[str, Sequence[float]]]


class MixedReport:
    """The figures, by policy and kind. `workload` has the jobs with what they take alone, in order of arrival."""

    def __init__(
        self,
        workload: Sequence[SimulatedJob],
        alone: Mapping[str, Solo],
        passages: Mapping[PolicyName, Sequence[Passage]],
        block_s: float,
    ) -> None:
        self._workload = workload
        self._alone = alone
        self._passages = passages
        self._block_s = block_s
        self._resolution_s = alone[SHORT].jitter_s

    def figures(self, seed: int) -> dict[str, object]:
        """All of them, as JSON takes them."""
        measured = {policy: self._measured(policy) for policy in self._passages}
        simulated = {policy: self._simulated(policy, self._workload) for policy in self._passages}
        as_run = {policy: self._simulated(policy, self._as_run(policy)) for policy in self._passages}
        errors, errors_as_run = _errors(simulated, measured), _errors(as_run, measured)
        before_s, after_s = measured[BEFORE][SHORT], measured[AFTER][SHORT]
        low, high = gain_interval(before_s, after_s, seed)
        return {
            "p99_gain": round(p99_gain(before_s, after_s), 1),
            "p99_gain_low": round(low, 1),
            "p99_gain_high": round(high, 1),
            "bootstrap": {"resamples": RESAMPLES, "run_length": RUN_LENGTH, "seed": seed},
            "sim_error": round(_mean(errors), 3),
            "sim_errors": _rounded(errors),
            "sim_error_as_run": round(_mean(errors_as_run), 3),
            "sim_errors_as_run": _rounded(errors_as_run),
            "resolution_s": round(self._resolution_s, 4),
            "below_resolution": {policy: self._below_resolution(policy) for policy in self._passages},
            "mean_delay_s": _table(measured, mean),
            "sim_mean_delay_s": _table(simulated, mean),
            "p50_delay_s": _table(measured, median),
            "p99_delay_s": _table(measured, p99),
            "sim_p99_delay_s": _table(simulated, p99),
            "slowdown": _rounded({policy: self._slowdown(policy) for policy in self._passages}),
            **self._alone_figures(),
        }

    def _alone_figures(self) -> dict[str, object]:
        """What jobs take alone, and how much work that makes of the arrivals."""
        seconds = {kind: solo.seconds for kind, solo in self._alone.items()}
        span_s = max(job.arrival_s for job in self._workload)
        return {
            "load": round(sum(job.seconds.denoise_s for job in self._workload) / span_s, 3),
            "span_s": round(span_s, 1),
            "long_ratio": round(seconds[LONG].total_s / seconds[SHORT].total_s, 1),
            "block_s": round(self._block_s, 4),
            "service_s": {kind: round(each.total_s, 4) for kind, each in seconds.items()},
            "stage_s": {
                kind: {
                    "encode": round(each.encode_s, 4),
                    "denoise": round(each.denoise_s, 4),
                    "decode": round(each.decode_s, 4),
                }
                for kind, each in seconds.items()
            },
            "alone_jobs": {kind: len(solo.passages) for kind, solo in self._alone.items()},
        }

    def _delays(self, policy: PolicyName) -> list[tuple[str, float]]:
        """Kind and delay of each job, in order of arrival."""
        pairs = zip(self._workload, self._passages[policy], strict=True)
        return [(job.kind, passage.latency_s - job.service_s) for job, passage in pairs]

    def _measured(self, policy: PolicyName) -> dict[str, list[float]]:
        return self._by_kind(self._delays(policy))

    def _simulated(self, policy: PolicyName, jobs: Sequence[SimulatedJob]) -> dict[str, list[float]]:
        """What the simulator makes of the jobs with one worker a stage: delays beyond what they take alone."""
        run = simulate(jobs, PolicySettings(policy), FleetSettings(workers=1, block_s=self._block_s))
        pairs = zip(self._workload, run.outcomes, strict=True)
        return self._by_kind([(job.kind, outcome.latency_s - job.service_s) for job, outcome in pairs])

    def _as_run(self, policy: PolicyName) -> list[SimulatedJob]:
        """The same jobs, the denoise of each as much longer or shorter as the device's work for it was."""
        usual_s = {kind: _device_s(solo.passages) for kind, solo in self._alone.items()}
        pairs = zip(self._workload, self._passages[policy], strict=True)
        return [_slower(job, passage.device_s / usual_s[job.kind]) for job, passage in pairs]

    def _by_kind(self, delays: Sequence[tuple[str, float]]) -> dict[str, list[float]]:
        return {
            kind: at_least(self._resolution_s, [delay_s for each, delay_s in delays if each == kind]) for kind in KINDS
        }

    def _below_resolution(self, policy: PolicyName) -> int:
        return sum(delay_s < self._resolution_s for _, delay_s in self._delays(policy))

    def _slowdown(self, policy: PolicyName) -> dict[str, float]:
        """Device seconds of a job among others, beside those of one alone."""
        pairs = list(zip(self._workload, self._passages[policy], strict=True))
        return {
            kind: _device_s([passage for job, passage in pairs if job.kind == kind]) / _device_s(solo.passages)
            for kind, solo in self._alone.items()
        }


def _device_s(passages: Sequence[Passage]) -> float:
    """The median of what the denoiser's device worked."""
    return median(passage.device_s for passage in passages)


def _slower(job: SimulatedJob, times: float) -> SimulatedJob:
    return replace(job, seconds=replace(job.seconds, denoise_s=job.seconds.denoise_s * times))


def _errors(foretold: Delays, measured: Delays) -> Table:
    """Of the mean delays."""
    return {
        policy: {kind: relative_error(mean(foretold[policy][kind]), mean(row[kind])) for kind in KINDS}
        for policy, row in measured.items()
    }


def _mean(table: Table) -> float:
    return mean(value for row in table.values() for value in row.values())


def _table(delays: Delays, figure: Callable[[Sequence[float]], float]) -> Table:
    return {policy: {kind: round(figure(row[kind]), 4) for kind in KINDS} for policy, row in delays.items()}


def _rounded(table: Mapping[str, Mapping[str, float]]) -> Table:
    return {name: {kind: round(value, 3) for kind, value in row.items()} for name, row in table.items()}
