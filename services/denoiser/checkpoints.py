"""A job's checkpoints on the exchange: written beside its work, read when it is taken up again."""

import asyncio
from collections import deque
from collections.abc import Callable

import structlog
import torch

from services.stage.hosted_model import HostedModel
from services.stage.numerics import numerics_id
from triptych.exchange import Bundle, BundleCorrupt, BundleGone, Exchange, ExchangeError
from triptych.v1.denoiser_service_pb2 import DenoiseRequest, DenoiseResponse
from triptych.v1.job_pb2 import Checkpoint

log = structlog.get_logger()
# The router may not have noted the newest yet: the one before stays.
_KEPT = 2


class Checkpoints:
    """Of one call. At most one is being written at a time; a job goes on without one that cannot be written."""

    def __init__(
        self,
        exchange: Exchange,
        model: HostedModel,
        device: torch.device,
        request: DenoiseRequest,
        tell: Callable[[DenoiseResponse], None],
    ) -> None:
        self._exchange = exchange
        self._model = model
        self._device = device
        self._request = request
        self._tell = tell
        self._kept: deque[Checkpoint] = deque()
        self._storing: asyncio.Task[None] | None = None
        # Asked for at the next step, whenever the last was, by who is called once it is written, or cannot be.
        self._asked_by: Callable[[], None] | None = None

    def ask(self, then: Callable[[], None]) -> None:
        """Have the next step's state written, and call `then`, after telling of it."""
        self._asked_by = then

    @property
    def asked(self) -> bool:
        return self._asked_by is not None

    @property
    def storing(self) -> bool:
        return self._storing is not None and not self._storing.done()

    def store(self, output_index: int, step: int, bundle: Bundle) -> None:
        """Write one, and tell of it when it is durable."""
        if not self.storing:
            self._storing = asyncio.get_running_loop().create_task(self._store(output_index, step, bundle))

    async def resume(self, output_index: int) -> Bundle | None:
        """The state that the request wants this output to go on from; None if it has to begin at the beginning."""
        checkpoint = self._request.checkpoint
        if not self._request.HasField("checkpoint") or checkpoint.output_index != output_index:
            return None
        refusal = self._refusal(checkpoint)
        if not refusal:
            try:
                return await self._exchange.get(checkpoint.data)
            except (BundleGone, BundleCorrupt) as error:
                refusal = str(error)
        log.info("checkpoint_left_aside", job_id=self._request.call.job_id, step=checkpoint.step, why=refusal)
        return None

    async def drop(self, output_index: int) -> None:
        """The output's latents are durable: its checkpoints are not needed any more."""
        if self._storing is not None:
            await asyncio.wait([self._storing])
        dropped = [each for each in self._kept if each.output_index == output_index]
        # All at once: the next output's are written while these are being deleted.
        self._kept = deque(each for each in self._kept if each.output_index != output_index)
        for checkpoint in dropped:
            await self._delete(checkpoint)

    def _refusal(self, checkpoint: Checkpoint) -> str:
        if checkpoint.fingerprint != self._model.checkpoint.fingerprint:
            return "it is of another model"
        if self._request.spec.reproducible and checkpoint.numerics_id != numerics_id(self._device):
            return "it was made with other numerics, and the job must come out bit for bit"
        return ""

    async def _store(self, output_index: int, step: int, bundle: Bundle) -> None:
        then, self._asked_by = self._asked_by, None
        try:
            await self._write(output_index, step, bundle)
        finally:
            if then is not None:
                then()

    async def _write(self, output_index: int, step: int, bundle: Bundle) -> None:
        try:
            ref = await self._exchange.put("latents", bundle)
        except ExchangeError as error:
            log.warning("checkpoint_not_written", job_id=self._request.call.job_id, error=str(error))
            return
        checkpoint = Checkpoint(
            output_index=output_index,
            step=step,
            data=ref,
            numerics_id=numerics_id(self._device),
            fingerprint=self._model.checkpoint.fingerprint,
        )
        self._kept.append(checkpoint)
        self._tell(DenoiseResponse(checkpoint=checkpoint))
        while len(self._kept) > _KEPT:
            await self._delete(self._kept.popleft())

    async def _delete(self, checkpoint: Checkpoint) -> None:
        try:
            await self._exchange.delete(checkpoint.data)
        except ExchangeError as error:
            # It expires by itself.
            log.info("checkpoint_not_deleted", error=str(error))
