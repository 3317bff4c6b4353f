"""Turns what a client asked for into a complete spec, or says which fields cannot be used."""

import secrets
from math import isfinite

from services.router.intake.attachments import read_attachments
from services.router.intake.canvas import fill_in_size, side_multiple
from services.router.intake.extra import check_extra
from services.router.intake.formats import FORMATS, check_format
from triptych.catalog import CatalogModel
from triptych.durations import seconds_of, seconds_within
from triptych.errors import TriptychError, Violation, invalid
from triptych.limits import MAX_FPS, MAX_SEED, MIN_FPS
from triptych.previews import DEFAULT_SIDE, check_policy
from triptych.v1.job_pb2 import JobSpec, MediaFormat, PriorityClass
from triptych.v1.worker_pb2 import ModelProfile

# Every JSON reader keeps it exactly.
_DRAWN_SEEDS = 2**53
_MAX_GUIDANCE = 1000.0
# The end of the year 9999: no reader of timestamps knows a later one.
_LAST_S = 253_402_300_799
_MIN_WITHIN_S = 1e-9
# Entries of one list that are named; more are as wrong, and say no more.
_MAX_NAMED = 16


def complete_spec(spec: JobSpec, model: CatalogModel, profile: ModelProfile) -> JobSpec:
    """The spec with the catalog's defaults, a size, a seed, and every field checked.

    Blocks for as long as it takes to decode the attachments. Raises INVALID_FIELD with all that is wrong.
    """
    full = JobSpec()
    full.CopyFrom(spec)
    attachments = read_attachments(full, profile)
    fill_in_size(full, model, profile, attachments.canvas)
    _fill_in(full, model)
    violations = [
        *_check_text(full, model, profile),
        *_check_counts(full, model),
        *_check_size(full, model, profile),
        *_check_video(spec, full, model, profile),
        *_check_choices(full),
        *check_format(full, model.media_kind),
        *(check_policy(full.preview) if full.HasField("preview") else ()),
        *attachments.violations,
        *check_extra(full, profile),
    ]
    if violations:
        raise invalid(*violations)
    return full


def with_deadline(spec: JobSpec, now_s: float) -> JobSpec:
    """The spec with the deadline that its `finish_within` comes to; itself if it has none.

    Raises INVALID_FIELD for a time that cannot be used, or is over.
    """
    if spec.HasField("deadline"):
        _check_deadline(spec, now_s)
    if not spec.HasField("finish_within"):
        return spec
    if spec.HasField("deadline"):
        raise invalid(Violation("spec.finish_within", "is given together with a deadline; leave one of them out"))
    within_s = seconds_within(spec.finish_within, _MIN_WITHIN_S, _LAST_S - now_s)
    if within_s is None:
        why = "must be above 0 and end before the year 10000, its nanos 0 to 999,999,999"
        raise invalid(Violation("spec.finish_within", why))
    made = JobSpec()
    made.CopyFrom(spec)
    made.ClearField("finish_within")
    made.deadline.FromNanoseconds(round((now_s + within_s) * 1e9))
    return made


def _check_deadline(spec: JobSpec, now_s: float) -> None:
    if not 0 <= spec.deadline.nanos < 10**9:
        raise invalid(Violation("spec.deadline", "nanos must be 0 to 999,999,999"))
    if spec.deadline.seconds > _LAST_S:
        raise invalid(Violation("spec.deadline", "is beyond the year 9999"))
    if seconds_of(spec.deadline) <= now_s:
        raise invalid(Violation("spec.deadline", "is in the past"))


def too_large(spec: JobSpec, max_bytes: int) -> TriptychError | None:
    """The error of a spec that is not worth looking into, None if it is."""
    size = spec.ByteSize()
    if size <= max_bytes:
        return None
    return invalid(Violation("spec", f"has {size} bytes; at most {max_bytes} are allowed"))


def _fill_in(spec: JobSpec, model: CatalogModel) -> None:
    defaults = model.defaults
    for name in ("step_count", "guidance"):
        if not spec.HasField(name):
            setattr(spec, name, getattr(defaults, name))
    if not spec.HasField("output_count"):
        spec.output_count = 1
    if not spec.HasField("reproducible"):
        spec.reproducible = spec.HasField("seed")
    if not spec.HasField("seed"):
        spec.seed = secrets.randbelow(_DRAWN_SEEDS)
    if spec.priority_class == PriorityClass.PRIORITY_CLASS_UNSPECIFIED:
        spec.priority_class = PriorityClass.PRIORITY_CLASS_STANDARD
    if spec.output_format == MediaFormat.MEDIA_FORMAT_UNSPECIFIED:
        spec.output_format = next(iter(FORMATS[model.media_kind]))
    if not spec.HasField("frame_count"):
        spec.frame_count = defaults.frame_count if model.media_kind == "video" else 1
    if model.media_kind == "video" and not spec.HasField("fps"):
        spec.fps = defaults.fps
    if spec.HasField("preview") and not spec.preview.max_side:
        spec.preview.max_side = DEFAULT_SIDE


def _check_text(spec: JobSpec, model: CatalogModel, profile: ModelProfile) -> list[Violation]:
    most = model.limits.max_prompt_bytes
    found = []
    declared = {given.name for given in profile.inputs}
    if "prompt" in declared and not spec.HasField("prompt"):
        found.append(Violation("spec.prompt", "must be given; it may be empty"))
    for field in ("prompt", "negative_prompt"):
        size = len(getattr(spec, field).encode())
        if size > most:
            found.append(Violation(f"spec.{field}", f"has {size} bytes; the model takes at most {most}"))
    if spec.negative_prompt and "negative_prompt" not in declared:
        found.append(Violation("spec.negative_prompt", "this model takes none"))
    return found


def _check_counts(spec: JobSpec, model: CatalogModel) -> list[Violation]:
    limits = model.limits
    found = []
    if not 1 <= spec.step_count <= limits.max_step_count:
        found.append(Violation("spec.step_count", f"must be 1 to {limits.max_step_count}"))
    if not 1 <= spec.output_count <= limits.max_output_count:
        found.append(Violation("spec.output_count", f"must be 1 to {limits.max_output_count}"))
    if spec.seed > MAX_SEED:
        found.append(Violation("spec.seed", f"must be 0 to {MAX_SEED}"))
    if not isfinite(spec.guidance) or abs(spec.guidance) > _MAX_GUIDANCE:
        found.append(Violation("spec.guidance", f"must be a number within ±{_MAX_GUIDANCE:g}"))
    return found


def _check_size(spec: JobSpec, model: CatalogModel, profile: ModelProfile) -> list[Violation]:
    limits, multiple = model.limits, side_multiple(profile)
    found = []
    for field in ("width", "height"):
        side = getattr(spec, field)
        if not limits.min_side <= side <= limits.max_side:
            found.append(Violation(f"spec.{field}", f"must be {limits.min_side} to {limits.max_side} pixels"))
        elif side % multiple:
            found.append(Violation(f"spec.{field}", f"must be a multiple of {multiple} pixels"))
    if not found and spec.width * spec.height > limits.max_pixels:
        found.append(Violation("spec.width", f"width × height must be at most {limits.max_pixels} pixels"))
    return found


def _check_video(asked: JobSpec, spec: JobSpec, model: CatalogModel, profile: ModelProfile) -> list[Violation]:
    found = []
    if model.media_kind != "video":
        if spec.frame_count != 1:
            found.append(Violation("spec.frame_count", "this model makes images: leave it out, or 1"))
        if asked.HasField("fps"):
            found.append(Violation("spec.fps", "this model makes images: leave it out"))
        return found
    every = max(1, profile.vae_temporal_factor)
    if not 1 <= spec.frame_count <= model.limits.max_frame_count:
        found.append(Violation("spec.frame_count", f"must be 1 to {model.limits.max_frame_count}"))
    elif (spec.frame_count - 1) % every:
        found.append(Violation("spec.frame_count", f"must be 1 + k × {every}"))
    if not MIN_FPS <= spec.fps <= MAX_FPS:
        found.append(Violation("spec.fps", f"must be {MIN_FPS:g} to {MAX_FPS:g}"))
    return found


def _check_choices(spec: JobSpec) -> list[Violation]:
    found = []
    if spec.priority_class not in PriorityClass.values():
        found.append(Violation("spec.priority_class", f"{spec.priority_class} is not a class"))
    for index, adapter in enumerate(spec.adapters):
        found.append(Violation(f"spec.adapters[{index}].name", f"no adapter is called {adapter.name[:64]!r}"))
    return found[:_MAX_NAMED]
