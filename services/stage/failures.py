"""What a stage's exceptions mean to the caller."""

import torch

from services.stage.device_thread import TooMuchWaits
from triptych.errors import Reason, TriptychError, Violation, invalid


def stage_failure(error: Exception, doing: str) -> TriptychError:
    """The catalog's error for what went wrong while `doing` ("denoising", say).

    A ValueError is the blocks' own check of a job's inputs, an OverflowError a number among them that is out of all
    proportion; an out-of-memory names what may help.
    """
    if isinstance(error, TriptychError):
        return error
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return TriptychError(
            Reason.OUT_OF_MEMORY, f"out of memory while {doing}; a smaller size or fewer frames may fit: {error}"
        )
    if isinstance(error, TooMuchWaits):
        return TriptychError(Reason.NO_SLOT, f"too much waits for the device: {error}")
    if isinstance(error, ValueError | OverflowError):
        return invalid(Violation("spec", f"the model refuses it while {doing}: {error}"))
    return TriptychError(Reason.STAGE_FAILED, f"{type(error).__name__} while {doing}: {error}")
