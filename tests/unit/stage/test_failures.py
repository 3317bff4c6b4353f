"""What a stage's exceptions mean to the caller."""

import pytest

from services.stage.device_thread import TooMuchWaits
from services.stage.failures import stage_failure
from triptych.errors import Reason, TriptychError
from triptych.v1.job_pb2 import JobSpec


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TriptychError(Reason.LATENTS_GONE, "gone"), Reason.LATENTS_GONE),
        (MemoryError("none left"), Reason.OUT_OF_MEMORY),
        (TooMuchWaits("256 wait"), Reason.NO_SLOT),
        (ValueError("height must be divisible by 8"), Reason.INVALID_FIELD),
        # The job's numbers are at fault: it must not be tried again and again as if the device were busy.
        (OverflowError("int too large to convert"), Reason.INVALID_FIELD),
        (RuntimeError("a kernel failed"), Reason.STAGE_FAILED),
    ],
)
def test_each_has_its_reason(error: Exception, reason: Reason) -> None:
    assert stage_failure(error, "denoising", JobSpec(model="sdxl")).reason is reason


@pytest.mark.parametrize("error", [TypeError("can only add int"), IndexError("tuple index out of range")])
def test_what_a_block_cannot_do_with_an_extra_input_is_bad_input(error: Exception) -> None:
    spec = JobSpec(model="sdxl")
    assert stage_failure(error, "encoding", spec).reason is Reason.STAGE_FAILED
    spec.extra["clip_skip"] = "x"
    failure = stage_failure(error, "encoding", spec)
    assert failure.reason is Reason.INVALID_FIELD
    assert [violation.field for violation in failure.violations] == ["spec.extra.clip_skip"]
    assert stage_failure(RuntimeError("a kernel"), "encoding", spec).reason is Reason.STAGE_FAILED


@pytest.mark.parametrize("error", [ValueError("sigmas"), OverflowError("too large"), TypeError("x"), IndexError("y")])
def test_what_happens_once_inputs_were_taken_is_not_the_clients_fault(error: Exception) -> None:
    spec = JobSpec(model="sdxl", extra={"clip_skip": 1})
    assert stage_failure(error, "denoising", spec).reason is Reason.INVALID_FIELD
    failure = stage_failure(error, "denoising", spec, underway=True)
    assert failure.reason is Reason.INTERNAL
    assert type(error).__name__ in failure.message
    assert str(error) in failure.message
    assert stage_failure(MemoryError(), "denoising", spec, underway=True).reason is Reason.OUT_OF_MEMORY
    assert stage_failure(RuntimeError("NaN"), "denoising", spec, underway=True).reason is Reason.STAGE_FAILED


@pytest.mark.parametrize("error", [ValueError, TypeError, RuntimeError, MemoryError])
def test_what_an_error_quotes_of_a_jobs_texts_is_left_out(error: type[Exception]) -> None:
    """Routers log what it says."""
    spec = JobSpec(prompt="a\nsecret garden", negative_prompt="hidden", extra={"prompt_2": ["inner secret"]})
    said = f"`negative_prompt`: {[spec.negative_prompt]!r} has another size than {[spec.prompt]!r} or inner secret"
    message = stage_failure(error(said), "encoding", spec).message
    assert "`negative_prompt`: ['…'] has another size than ['…'] or …" in message


def test_a_short_text_is_left_out_as_a_word_alone() -> None:
    failure = stage_failure(ValueError("a height must be a multiple"), "encoding", JobSpec(prompt="a"))
    assert "… height must be … multiple" in failure.message
