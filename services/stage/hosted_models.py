"""The models of the catalog that a worker serves, by name."""

import time
from collections.abc import Callable, Iterator

import structlog

from services.stage.checkpoint import Checkpoint
from services.stage.hosted_block import HostedBlock
from services.stage.hosted_model import HostedModel
from services.stage.worker import WorkerHost
from services.stage.yield_points import add_yield_points
from triptych.errors import Reason, TriptychError

log = structlog.get_logger()


class HostedModels:
    """`names` tells which of a checkpoint's blocks this stage runs; `preemptible`: forwards give way in the middle."""

    def __init__(self, host: WorkerHost, names: Callable[[Checkpoint], list[str]], *, preemptible: bool = True) -> None:
        self._host = host
        self._names = names
        self._preemptible = preemptible
        self._models: dict[str, HostedModel] = {}

    def load(self) -> None:
        """Load every model, on the device thread. Raises `CheckpointError`."""
        for name, checkpoint in self._host.checkpoints.items():
            model = HostedModel(
                checkpoint, self._names(checkpoint), self._host.dtype(name), self._host.device, self._prepare
            )
            began_s = time.monotonic()
            model.load()
            self._host.load_s[name] = time.monotonic() - began_s
            # Read once, here: it hashes the weights.
            log.info("model_loaded", model=name, fingerprint=checkpoint.profile.fingerprint)
            self._models[name] = model

    def _prepare(self, hosted: HostedBlock) -> None:
        if not self._preemptible:
            return
        for name, network in hosted.networks.items():
            count = add_yield_points(network, self._host.yield_point)
            log.info("yield_points_added", model=hosted.checkpoint.name, block=hosted.name, network=name, count=count)

    def __iter__(self) -> Iterator[HostedModel]:
        return iter(self._models.values())

    def get(self, name: str) -> HostedModel:
        """The model. Raises `TriptychError`: MODEL_UNKNOWN, or NOT_READY while it loads."""
        if name in self._models:
            return self._models[name]
        if name in self._host.models:
            raise TriptychError(Reason.NOT_READY, f"model {name!r} is still loading on {self._host.worker_id}")
        raise TriptychError(Reason.MODEL_UNKNOWN, f"{self._host.worker_id} does not serve {name!r}")
