"""The models of the catalog that a worker serves, by name."""

from collections.abc import Callable, Iterator

import structlog

from services.stage.checkpoint import Checkpoint
from services.stage.hosted_model import HostedModel
from services.stage.worker import WorkerHost
from triptych.errors import Reason, TriptychError

log = structlog.get_logger()


class HostedModels:
    """`names` tells which of a checkpoint's blocks this stage runs."""

    def __init__(self, host: WorkerHost, names: Callable[[Checkpoint], list[str]]) -> None:
        self._host = host
        self._names = names
        self._models: dict[str, HostedModel] = {}

    def load(self) -> None:
        """Load every model, on the device thread. Raises `CheckpointError`."""
        for name, checkpoint in self._host.checkpoints.items():
            model = HostedModel(checkpoint, self._names(checkpoint), self._host.dtype(name), self._host.device)
            model.load()
            # Read once, here: it hashes the weights.
            log.info("model_loaded", model=name, fingerprint=checkpoint.profile.fingerprint)
            self._models[name] = model

    def __iter__(self) -> Iterator[HostedModel]:
        return iter(self._models.values())

    def get(self, name: str) -> HostedModel:
        """The model. Raises `TriptychError`: MODEL_UNKNOWN, or NOT_READY while it loads."""
        if name in self._models:
            return self._models[name]
        if name in self._host.models:
            raise TriptychError(Reason.NOT_READY, f"model {name!r} is still loading on {self._host.worker_id}")
        raise TriptychError(Reason.MODEL_UNKNOWN, f"{self._host.worker_id} does not serve {name!r}")
