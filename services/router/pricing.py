"""From a job's spec to its price: the catalog's prior on the model's own token grid, corrected by measurements."""

from dataclasses import replace
from math import isfinite

from google.protobuf.duration_pb2 import Duration

from services.router.core.estimator import Estimate, Sample, ScaledEstimator
from services.router.core.job import Stage, StageSeconds
from services.router.core.price import JobShape, ModelCost, TokenGrid
from triptych.catalog import Catalog, Cost
from triptych.v1 import job_pb2
from triptych.v1.job_pb2 import JobSpec
from triptych.v1.worker_pb2 import ModelProfile

# An input of models that had guidance distilled into them: they take it as a number and run one forward a step.
_DISTILLED_INPUT = "guidance_scale"


class Pricing:
    """Prices jobs of the catalog's models, each once a worker has told its profile."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._estimator = ScaledEstimator({})
        self._profiles: dict[str, ModelProfile] = {}

    def learn(self, profile: ModelProfile) -> None:
        """Take in what a worker tells of a model; one that the catalog does not know is ignored."""
        model = self._catalog.models.get(profile.name)
        if model is not None:
            self._profiles[profile.name] = profile
            self._estimator.set_cost(profile.name, model_cost(model.cost, profile))

    def price(self, spec: JobSpec) -> Estimate:
        """The price of a complete spec. Raises KeyError for a model that no worker has told of."""
        return self._estimator.estimate(self.shape(spec))

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
        )

    def tail(self, spec: JobSpec, done: int) -> Estimate:
        """The price of a job whose outputs have run `done` of its steps. Raises KeyError as `price` does."""
        left = replace(self.shape(spec), step_count=max(1, steps_run(spec) - steps_run(spec, done)))
        return self._estimator.estimate(left)

    def observe(self, spec: JobSpec, stage: Stage, seconds: float, output_count: int) -> None:
        """Learn from a stage that took `seconds` of device time for so many of the job's outputs."""
        if output_count > 0 and spec.model in self._profiles:
            shape = replace(self.shape(spec), output_count=output_count)
            self._estimator.observe(Sample(shape, stage, seconds))


def model_cost(cost: Cost, profile: ModelProfile) -> ModelCost:
    """The prior of a model: figures from the catalog, geometry from the checkpoint."""
    grid = TokenGrid(
        vae_scale_factor=max(1, profile.vae_scale_factor),
        patch_size=max(1, profile.patch_size),
        vae_temporal_factor=max(1, profile.vae_temporal_factor),
        text_token_count=profile.text_token_count,
    )
    return ModelCost(
        grid=grid,
        tflop_per_ktoken=cost.tflop_per_ktoken,
        effective_tflops=cost.effective_tflops,
        forward_s=cost.forward_s,
        encode_s=cost.encode_s,
        decode_s_per_megapixel=cost.decode_s_per_megapixel,
    )


def estimate_message(estimate: Estimate) -> job_pb2.Estimate:
    seconds = estimate.seconds
    return job_pb2.Estimate(
        total=duration(seconds.total_s),
        encode=duration(seconds.encode_s),
        denoise=duration(seconds.denoise_s),
        decode=duration(seconds.decode_s),
        forward_count=estimate.forward_count,
        token_count=estimate.token_count,
    )


def stage_seconds(estimate: job_pb2.Estimate) -> StageSeconds:
    """The other way round, for a job that is taken up again."""
    return StageSeconds(seconds(estimate.encode), seconds(estimate.denoise), seconds(estimate.decode))


def duration(seconds_: float) -> Duration:
    """Seconds, 0 if negative or not finite, as a message."""
    made = Duration()
    made.FromNanoseconds(round(seconds_ * 1e9) if isfinite(seconds_) and seconds_ > 0 else 0)
    return made


def seconds(duration_: Duration) -> float:
    return float(duration_.seconds) + duration_.nanos / 1e9


def amended(estimate: job_pb2.Estimate, spec: JobSpec, step_count: int) -> job_pb2.Estimate:
    """A job's estimate if it ran another number of steps: as it was told before, and the denoise in proportion."""
    ratio = steps_run(spec, step_count) / steps_run(spec)
    denoise_s = seconds(estimate.denoise) * ratio
    return job_pb2.Estimate(
        total=duration(seconds(estimate.encode) + denoise_s + seconds(estimate.decode)),
        encode=estimate.encode,
        denoise=duration(denoise_s),
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
