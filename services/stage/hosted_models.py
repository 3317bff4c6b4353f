"""The models of the catalog that a worker serves, by name."""

import time
from collections.abc import AsyncIterator, Callable, Iterator

import structlog

from services.stage.checkpoint import Checkpoint
from services.stage.hosted_block import HostedBlock
from services.stage.hosted_model import HostedModel
from services.stage.worker import WorkerHost
from services.stage.yield_points import add_yield_points
from triptych.errors import Reason, TriptychError

log = structlog.get_logger()


def _as_it_is(model: HostedModel) -> None:
    pass


class HostedModels:
    """Each of them is served as soon as it is loaded. `preemptible`: forwards give way in the middle.

    `finish` is called for a model that is loaded, on the device thread, before it is served.
    """

    def __init__(
        self, host: WorkerHost, finish: Callable[[HostedModel], None] = _as_it_is, *, preemptible: bool = True
    ) -> None:
        self._host = host
        self._finish = finish
        self._preemptible = preemptible
        self._models: dict[str, HostedModel] = {}

    def load(self, checkpoint: Checkpoint) -> None:
        """Load a model, on the device thread. Raises `CheckpointError`, or whatever else keeps it from being served."""
        name, host = checkpoint.name, self._host
        model = HostedModel(checkpoint, host.block_names(checkpoint), host.dtype(name), host.device, self._prepare)
        began_s = time.monotonic()
        model.load(host.thread.give_way)
        host.load_s[name] = time.monotonic() - began_s
        # Read once, here: it hashes the weights.
        log.info("model_loaded", model=name, fingerprint=checkpoint.profile.fingerprint)
        self._finish(model)
        self._models[name] = model

    def _prepare(self, hosted: HostedBlock) -> None:
        if not self._preemptible:
            return
        for name, network in hosted.networks.items():
            count = add_yield_points(network, self._host.yield_point)
            log.info("yield_points_added", model=hosted.checkpoint.name, block=hosted.name, network=name, count=count)

    def __iter__(self) -> Iterator[HostedModel]:
        return iter(self._models.values())

    async def each(self) -> AsyncIterator[HostedModel]:
        """Every model, as soon as it is served; never ends."""
        told: set[str] = set()
        while True:
            changed = self._host.served_changed
            for name, model in list(self._models.items()):
                if name not in told:
                    told.add(name)
                    yield model
            await changed.wait()

    def get(self, name: str) -> HostedModel:
        """The model. Raises `TriptychError`: MODEL_UNKNOWN, MODEL_UNAVAILABLE, or NOT_READY while it loads."""
        if name in self._models:
            return self._models[name]
        worker_id = self._host.worker_id
        if name in self._host.refused:
            raise TriptychError(
                Reason.MODEL_UNAVAILABLE, f"{worker_id} cannot serve {name!r}: {self._host.refused[name]}"
            )
        if name in self._host.models:
            raise TriptychError(Reason.NOT_READY, f"model {name!r} is still loading on {worker_id}")
        raise TriptychError(Reason.MODEL_UNKNOWN, f"{worker_id} does not serve {name!r}")
