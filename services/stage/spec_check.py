"""What a worker checks of a job itself, whoever calls: enough that nothing unbounded starts."""

from triptych.errors import Violation, invalid
from triptych.limits import MAX_FPS, MAX_FRAMES, MAX_OUTPUTS, MAX_SEED, MAX_SIDE, MAX_STEPS, MIN_FPS
from triptych.previews import check_policy
from triptych.v1.job_pb2 import Amendment, AttachmentRole, JobSpec, MediaFormat


def check_spec(spec: JobSpec) -> None:
    """The router has filled in and checked everything; a call that has not been through it is refused.

    Raises `TriptychError` (INVALID_FIELD) naming every field at fault.
    """
    ranges = [
        ("step_count", spec.step_count, 1, MAX_STEPS),
        ("width", spec.width, 1, MAX_SIDE),
        ("height", spec.height, 1, MAX_SIDE),
        # An image has none.
        ("frame_count", spec.frame_count, 0, MAX_FRAMES),
        ("output_count", spec.output_count, 1, MAX_OUTPUTS),
        ("seed", spec.seed, 0, MAX_SEED),
    ]
    violations = [
        Violation(f"spec.{name}", f"must be {low} to {high}, is {value}")
        for name, value, low, high in ranges
        if not low <= value <= high
    ]
    if spec.HasField("fps") and not MIN_FPS <= spec.fps <= MAX_FPS:
        violations.append(Violation("spec.fps", f"must be {MIN_FPS:g} to {MAX_FPS:g}, is {spec.fps}"))
    if not spec.HasField("seed"):
        violations.append(Violation("spec.seed", "must be set: the router draws one"))
    if spec.output_format not in MediaFormat.values():
        violations.append(Violation("spec.output_format", f"{spec.output_format} is not a format"))
    for index, attachment in enumerate(spec.attachments):
        if attachment.role not in AttachmentRole.values() or not attachment.role:
            violations.append(Violation(f"spec.attachments[{index}].role", "must be named"))
    if spec.HasField("preview"):
        violations += check_policy(spec.preview)
    if violations:
        raise invalid(*violations)


def check_amendment(amendment: Amendment) -> None:
    """Raises `TriptychError` (INVALID_FIELD) for a change that names nothing, or steps without bound."""
    change = amendment.WhichOneof("change")
    if change is None:
        raise invalid(Violation("amendment", "must name finish_now or a step_count"))
    if change == "step_count" and not 1 <= amendment.step_count <= MAX_STEPS:
        raise invalid(Violation("amendment.step_count", f"must be 1 to {MAX_STEPS}, is {amendment.step_count}"))
