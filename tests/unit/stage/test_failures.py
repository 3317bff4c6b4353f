"""What a stage's exceptions mean to the caller."""

import pytest

from services.stage.device_thread import TooMuchWaits
from services.stage.failures import stage_failure
from triptych.errors import Reason, TriptychError


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
    assert stage_failure(error, "denoising").reason is reason
