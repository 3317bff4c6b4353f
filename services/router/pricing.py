"""From a job's spec to its price: each model's law on its own token grid, corrected by measurements."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

from services.router.core.job import Stage, StageSeconds
from services.router.estimates.estimate_error import EstimateError
from services.router.estimates.estimator import CallKind, CurveEstimator, Estimate, Sample, Serving
from services.router.estimates.price import UNKNOWN_TFLOP_PER_KTOKEN, JobShape, ModelCost, TokenGrid
from services.router.estimates.quadratic import Point, Quadratic, fit
from services.router.stages import FROM_PROTO, TO_PROTO
from triptych.catalog import Catalog, Cost
from triptych.durations import duration_of, seconds_of
from triptych.v1 import job_pb2
from triptych.v1.job_pb2 import JobSpec
from triptych.v1.worker_pb2 import ForwardCost, Measurement, ModelProfile, WorkerHeartbeat

# An input of models that had guidance distilled into them: they take it as a number and run one forward a step.
_DISTILLED_INPUT = "guidance_scale"
_INDEX = re.compile(r"^(\w+):\d+\b")


class Pricing:
    """Prices jobs of the catalog's models, each once a worker has told its profile."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._estimator = CurveEstimator()
        self._profiles: dict[str, ModelProfile] = {}
        self._forwards: dict[str, Quadratic] = {}

    def learn(self, profile: ModelProfile) -> None:
        """Take in what a worker tells of a model; one that the catalog does not know is ignored."""
        if profile.name in self._catalog.models:
            self._profiles[profile.name] = profile
            self._set_cost(profile.name)

    def hear(self, beat: WorkerHeartbeat) -> None:
        """Take in what a worker tells of its device, of what forwards cost, and of how long it loaded."""
        device = device_kind(beat.device)
        self._estimator.set_speed(device, beat.device_tflops)
        for model in beat.models:
            name = model.profile.name
            if name not in self._profiles:
                continue
            if model.forward_costs:
                self._forwards[name] = forward_law(model.forward_costs)
                self._set_cost(name)
            if model.HasField("load_time"):
                self._estimator.observe_load(name, FROM_PROTO[beat.stage], device, seconds_of(model.load_time))

    def price(self, spec: JobSpec, serving: Serving) -> Estimate:
        """The price of a complete spec. Raises KeyError for a model that no worker has told of."""
        return self._estimator.estimate(self.shape(spec), serving)

    def shape(self, spec: JobSpec) -> JobShape:
        """What of a complete spec decides its price."""
        profile = self._profiles[spec.model]
        distilled = any(given.name == _DISTILLED_INPUT for given in profile.inputs)
        return JobShape(
            model=spec.model,
            width=spec.width,
            height=spec.height,
            step_count=steps_run(spec),
            forwards_per_step=2 if spec.guidance > 1.0 and not distilled else 1,
            frame_count=max(1, spec.frame_count),
            output_count=max(1, spec.output_count),
            attachment_count=len(spec.attachments),
        )

    def tail(self, spec: JobSpec, done: int, serving: Serving) -> Estimate:
        """The price of a job whose outputs have run `done` of its steps. Raises KeyError as `price` does."""
        left = replace(self.shape(spec), step_count=max(1, steps_run(spec) - steps_run(spec, done)))
        return self._estimator.estimate(left, serving)

    def observe(self, spec: JobSpec, stage: Stage, device: str, seconds: float, calls: int = 1) -> None:
        """Learn from calls of a stage that took `seconds` of device time together; see `Sample`."""
        if spec.model in self._profiles:
            size = self._estimator.size(self.shape(spec), stage)
            self._estimator.observe(Sample(spec.model, stage, device_kind(device), size, seconds, calls))

    def observe_denoise(
        self, spec: JobSpec, device: str, seconds: float, output_count: int, measured: Iterable[Measurement]
    ) -> None:
        """Learn from a denoise of so many outputs: by what its forwards took, else by the whole."""
        if spec.model not in self._profiles or output_count < 1:
            return
        forwards = [each for each in measured if each.call_count and each.batch_size]
        shape = replace(self.shape(spec), output_count=output_count)
        if not forwards:
            self.observe(spec, Stage.DENOISE, device, seconds, shape.forward_count)
            return
        for each in forwards:
            size = each.token_count or self._estimator.size(shape, Stage.DENOISE)
            kind = device_kind(each.device or device)
            spent_s = seconds_of(each.device_time)
            sample = Sample(spec.model, Stage.DENOISE, kind, size, spent_s, each.call_count, each.batch_size)
            self._estimator.observe(sample)
        usual = max(forwards, key=lambda each: each.call_count)
        self._estimator.passes.observe(shape, sum(each.call_count for each in forwards), usual.batch_size)

    def errors(self) -> dict[CallKind, EstimateError]:
        """How far off the last estimates were, where any was put to the test; in the order of models and stages."""
        return dict(
            sorted(self._estimator.errors().items(), key=lambda item: (item[0][0], TO_PROTO[item[0][1]], item[0][2]))
        )

    def state(self) -> dict[str, Any]:
        """What was learnt, as plain values for JSON."""
        return self._estimator.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what an earlier router had learnt. Raises ValueError if that cannot be read."""
        self._estimator.restore(state)

    def _cost(self, model: str) -> ModelCost:
        return model_cost(self._catalog.models[model].cost, self._profiles[model], self._forwards.get(model))

    def _set_cost(self, model: str) -> None:
        self._estimator.set_cost(model, self._cost(model))


def model_cost(cost: Cost, profile: ModelProfile, forward: Quadratic | None) -> ModelCost:
    """The prior of a model: geometry from the checkpoint, figures from the catalog, else what a worker counted.

    `forward` are the TFLOP of a forward by its tokens.
    """
    grid = TokenGrid(
        vae_scale_factor=max(1, profile.vae_scale_factor),
        patch_size=max(1, profile.patch_size),
        vae_temporal_factor=max(1, profile.vae_temporal_factor),
        text_token_count=profile.text_token_count,
    )
    if cost.tflop_per_ktoken is not None or forward is None:
        per_ktoken = UNKNOWN_TFLOP_PER_KTOKEN if cost.tflop_per_ktoken is None else cost.tflop_per_ktoken
        forward = Quadratic(0.0, per_ktoken / 1e3)
    return ModelCost(
        grid=grid,
        tflop=forward.a,
        tflop_per_ktoken=forward.b * 1e3,
        tflop_per_ktoken2=forward.c * 1e6,
        effective_tflops=cost.effective_tflops,
        forward_s=cost.forward_s,
        encode_s=cost.encode_s,
        decode_s_per_megapixel=cost.decode_s_per_megapixel,
        load_s=cost.load_s,
    )


def forward_law(costs: Iterable[ForwardCost]) -> Quadratic:
    """The TFLOP of a forward by its tokens, from what was counted at a few sizes."""
    return fit([Point(each.token_count, each.tflop) for each in costs if each.tflop > 0.0 and isfinite(each.tflop)])


def device_kind(label: str) -> str:
    """What devices that are alike have in common: their label without the index ("cuda NVIDIA H200")."""
    return _INDEX.sub(r"\1", label)


def estimate_message(estimate: Estimate) -> job_pb2.Estimate:
    seconds = estimate.seconds
    return job_pb2.Estimate(
        total=duration_of(seconds.total_s),
        encode=duration_of(seconds.encode_s),
        denoise=duration_of(seconds.denoise_s),
        decode=duration_of(seconds.decode_s),
        forward_count=estimate.forward_count,
        token_count=estimate.token_count,
    )


def stage_seconds(estimate: job_pb2.Estimate) -> StageSeconds:
    """The other way round, for a job that is taken up again."""
    return StageSeconds(seconds_of(estimate.encode), seconds_of(estimate.denoise), seconds_of(estimate.decode))


def amended(estimate: job_pb2.Estimate, spec: JobSpec, step_count: int) -> job_pb2.Estimate:
    """A job's estimate if it ran another number of steps: as it was told before, and the denoise in proportion."""
    ratio = steps_run(spec, step_count) / steps_run(spec)
    denoise_s = seconds_of(estimate.denoise) * ratio
    return job_pb2.Estimate(
        total=duration_of(seconds_of(estimate.encode) + denoise_s + seconds_of(estimate.decode)),
        encode=estimate.encode,
        denoise=duration_of(denoise_s),
        decode=estimate.decode,
        forward_count=round(estimate.forward_count * ratio),
        token_count=estimate.token_count,
    )


def steps_run(spec: JobSpec, step_count: int | None = None) -> int:
    """Steps that the denoiser will run of so many, or the spec's: from a given image the last `strength` part only."""
    steps = int(spec.step_count if step_count is None else step_count)
    strength = spec.extra.fields["strength"].number_value if "strength" in spec.extra.fields else 1.0
    if not spec.attachments or not 0.0 < strength < 1.0:
        return steps
    return max(1, int(steps * strength))
