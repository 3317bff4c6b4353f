"""Full stores: who submits hears of it, and who was accepted loses nothing."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.integration.router.bench import CONFIG, Bench, kinds, spec
from tests.natsd import NatsServer
from triptych.errors import Reason, TriptychError
from triptych.exchange import Entry, Exchange

LIMIT = 4 << 20


@pytest.fixture
async def bench(nats_server: NatsServer, exchange: Exchange) -> AsyncIterator[Bench]:
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        await bench.start_router(replace(CONFIG, exchange=replace(CONFIG.exchange, outputs_max_bytes=LIMIT)))
        yield bench


async def verdict(bench: Bench) -> TriptychError | None:
    """What a submit is refused with; None if it is not."""
    try:
        await bench.submit()
    except TriptychError as error:
        return error
    return None


async def test_nothing_is_accepted_into_a_full_store(bench: Bench) -> None:
    bench.decoder.gate.close()
    accepted = await bench.submit()
    await bench.decoder.gate.reached()
    filler = await bench.exchange.put("outputs", {"file": Entry(secrets.token_bytes(LIMIT * 92 // 100))})
    async with asyncio.timeout(10):
        while (refused := await verdict(bench)) is None:  # noqa: ASYNC110 - a pause between calls
            await asyncio.sleep(0.1)
    assert refused.reason is Reason.STORE_FULL
    assert refused.metadata["store"] == "OUTPUTS"
    assert refused.retry_after_s
    await bench.decoder.gate.open()
    assert kinds(await bench.events(accepted.job_id))[-1] == "succeeded"
    await bench.exchange.delete(filler)
    async with asyncio.timeout(10):
        while await verdict(bench) is not None:  # noqa: ASYNC110 - a pause between calls
            await asyncio.sleep(0.1)
    assert (await bench.submit(spec(seed=9))).job_id
