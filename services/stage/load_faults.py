"""Why a model could not be loaded, in words that say what to do."""

from collections.abc import Iterator

from huggingface_hub import constants, get_token
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from services.stage.checkpoint import CheckpointError
from services.stage.device_thread import TooMuchWaits
from services.stage.folder_check import Unsound
from services.stage.short_memory import is_memory_short
from triptych.config import ConfigError


def load_fault(model: str, checkpoint: str, error: Exception) -> CheckpointError:
    """What an exception means that loading the model raised; `checkpoint` is the catalog's word for it."""
    chain = list(_chain(error))
    # What the hub answered lies behind what its library made of it.
    for kind in (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled):
        if found := [each for each in chain if isinstance(each, kind)]:
            return CheckpointError(model, _hub_words(checkpoint, found[0]), passing=True)
    if any(is_memory_short(each) for each in chain):
        why = f"memory is short: serve fewer models here (--models), or on a larger device; {error}"
        return CheckpointError(model, why)
    if isinstance(error, CheckpointError):
        return error
    if isinstance(error, Unsound | ConfigError):
        return CheckpointError(model, str(error))
    passing = isinstance(error, OSError | TooMuchWaits)
    return CheckpointError(model, f"{type(error).__name__}: {error}", passing=passing)


def _hub_words(checkpoint: str, error: BaseException) -> str:
    page = f"{constants.ENDPOINT}/{checkpoint}"
    if isinstance(error, GatedRepoError):
        if get_token():
            return f"gated: accept the licence at {page} for the account whose token HF_TOKEN is"
        return f"gated: set HF_TOKEN, and accept the licence at {page}"
    if isinstance(error, RepositoryNotFoundError):
        return f"the hub has no model {page}, or it is private: check its name; for a private one set HF_TOKEN"
    if isinstance(error, RevisionNotFoundError):
        return f"{page} has no such revision: name another in the catalog"
    if isinstance(error, HfHubHTTPError):
        return f"the hub answers {page} with an error: {_line(error)}"
    return f"the hub cannot be reached at {constants.ENDPOINT}, and not all of it is in the cache: {_line(error)}"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it came of, the first last."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
