"""The preview decoders of all models, made in the background: loaded, found on the exchange, or fitted once."""

import math
from functools import partial

import nats.errors
import nats.js.errors
import structlog

from services.decoder.linear_map import LinearFit, LinearMap
from services.decoder.preview_decoder import PreviewDecoder, fitting, linear_decoder, tiny_decoder
from services.stage.hosted_model import HostedModel
from services.stage.worker import WorkerHost
from triptych.exchange import ExchangeError

log = structlog.get_logger()
BUCKET = "preview_maps"
# Of the pictures and the method: a map of another version is fitted anew.
VERSION = 1
# After everything else, one small piece at a time.
_RANK = (math.inf, "~")


class PreviewDecoders:
    """Makes them, one model at a time."""

    def __init__(self, host: WorkerHost) -> None:
        self._host = host

    async def make(self, model: HostedModel) -> PreviewDecoder:
        """The model's preview decoder. Raises whatever its VAE raises on pictures that it cannot encode."""
        return await self._load(model) or await self._find_or_fit(model)

    async def _load(self, model: HostedModel) -> PreviewDecoder | None:
        """The tiny decoder that the catalog names; None if it names none, or that cannot be loaded."""
        name = model.checkpoint.name
        try:
            place = self._host.catalog.tiny_decoder(name)
            if place is None:
                return None
            made = await self._host.thread.run(_RANK, partial(tiny_decoder, model, place))
        except Exception as error:  # noqa: BLE001 - previews are made without it
            log.warning("tiny_decoder_not_loaded", model=name, why=str(error))
            return None
        log.info("preview_decoder_loaded", model=name)
        return made

    async def _find_or_fit(self, model: HostedModel) -> PreviewDecoder:
        linear_map = await self._find(model)
        if linear_map is None:
            linear_map = await self._fit(model)
            await self._keep(model, linear_map)
            log.info("preview_decoder_fitted", model=model.checkpoint.name)
        return await self._host.thread.run(_RANK, partial(linear_decoder, model, linear_map))

    async def _fit(self, model: HostedModel) -> LinearMap:
        fit = LinearFit()
        pieces = await self._host.thread.run(_RANK, lambda: list(fitting(model, fit)))
        for piece in pieces:
            await self._host.thread.run(_RANK, piece)
        return fit.solve()

    async def _find(self, model: HostedModel) -> LinearMap | None:
        try:
            bucket = await self._host.exchange.bucket(BUCKET)
            stored = await bucket.get(_key(model))
            return LinearMap.from_bytes(stored.value or b"")
        except nats.js.errors.KeyNotFoundError:
            return None
        except (ExchangeError, nats.errors.Error, TimeoutError, ValueError) as error:
            log.warning("preview_map_not_read", model=model.checkpoint.name, error=str(error))
            return None

    async def _keep(self, model: HostedModel, linear_map: LinearMap) -> None:
        try:
            bucket = await self._host.exchange.bucket(BUCKET)
            await bucket.put(_key(model), linear_map.to_bytes())
        except (ExchangeError, nats.errors.Error, TimeoutError) as error:
            log.warning("preview_map_not_kept", model=model.checkpoint.name, error=str(error))


def _key(model: HostedModel) -> str:
    return f"{model.checkpoint.fingerprint}-{VERSION}"
