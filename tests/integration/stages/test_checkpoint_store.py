"""Checkpoints of two outputs at once, while NATS is slow."""

import asyncio
from types import SimpleNamespace
from typing import Any

import torch

from services.denoiser.checkpoints import Checkpoints
from services.stage.tensors import to_bundle
from tests.natsd import NatsServer
from triptych.exchange import Exchange, ExchangeConfig
from triptych.v1.denoiser_service_pb2 import DenoiseRequest, DenoiseResponse
from triptych.v1.tensor_pb2 import DataRef


class SlowToDelete(Exchange):
    """The first deletion waits until it is let go."""

    def __init__(self, config: ExchangeConfig) -> None:
        super().__init__(config)
        self.deleting, self.go_on = asyncio.Event(), asyncio.Event()

    async def delete(self, ref: DataRef) -> None:
        self.deleting.set()
        await self.go_on.wait()
        await super().delete(ref)


async def test_one_outputs_checkpoints_may_be_dropped_while_the_nexts_are_written(nats_server: NatsServer) -> None:
    told: asyncio.Queue[DenoiseResponse] = asyncio.Queue()
    model: Any = SimpleNamespace(checkpoint=SimpleNamespace(fingerprint="f"))
    async with SlowToDelete(ExchangeConfig(url=nats_server.url)) as exchange:
        checkpoints = Checkpoints(exchange, model, torch.device("cpu"), DenoiseRequest(), told.put_nowait)

        async def store(output_index: int, step: int) -> DataRef:
            while checkpoints.storing:  # noqa: ASYNC110 - the last one told of itself; its task ends now
                await asyncio.sleep(0)
            checkpoints.store(output_index, step, to_bundle({"x": (torch.ones(2), "")}))
            return (await told.get()).checkpoint.data

        first = [await store(0, step) for step in (1, 2)]
        dropping = asyncio.create_task(checkpoints.drop(0))
        await exchange.deleting.wait()
        second = [await store(1, step) for step in (1, 2)]
        exchange.go_on.set()
        await dropping
        assert [await exchange.exists(ref) for ref in (*first, *second)] == [False, False, True, True]
