"""What the client makes of a router that fails, goes away and comes back."""

import asyncio
import contextlib

import pytest

from tests.integration.client.scripted_router import JOB, STEPS, ScriptedRouter, served
from triptych.client import Client, Media, Patience
from triptych.errors import Reason, TriptychError
from triptych.v1 import job_pb2

QUICK = Patience(connect_s=0.5, reconnect_s=5.0, first_pause_s=0.01, max_pause_s=0.05)
SPEC = job_pb2.JobSpec(model="shapes", prompt="a star")
AWAY = TriptychError(Reason.EXCHANGE_UNAVAILABLE, "NATS is away")


async def test_a_watch_that_breaks_goes_on_where_it_was() -> None:
    router = ScriptedRouter()
    router.broken_streams = 3
    async with served(router) as address, Client(address, patience=QUICK) as client:
        sequences = [event.sequence async for event in client.watch(JOB)]
    assert sequences == list(range(1, STEPS + 2))
    assert router.watched_from == [0, 1, 2, 3]


async def test_a_watch_from_the_end_of_an_ended_job_has_nothing_to_tell() -> None:
    async with served(ScriptedRouter()) as address, Client(address, patience=QUICK) as client:
        assert [event async for event in client.watch(JOB, after_sequence=STEPS + 1)] == []


async def test_a_watch_outlives_a_restart_of_the_router() -> None:
    router = ScriptedRouter()
    router.hold_at = 3
    sequences = []
    async with served(router) as address:
        pass
    async with Client(address, patience=QUICK) as client:
        async with served(router, address):
            events = client.watch(JOB)
            sequences += [(await anext(events)).sequence for _ in range(2)]
            following = asyncio.ensure_future(anext(events))
            await router.holding.wait()
        router.hold_at = None
        async with served(router, address):
            sequences.append((await following).sequence)
            sequences += [event.sequence async for event in events]
    assert sequences == list(range(1, STEPS + 2))


async def test_a_submit_is_repeated_under_one_request_id() -> None:
    router = ScriptedRouter()
    router.failures = [AWAY, AWAY]
    async with served(router) as address, Client(address, patience=QUICK) as client:
        assert (await client.submit(SPEC)).job_id == JOB
        await client.submit(SPEC)
    first, second, third, other = router.request_ids
    assert first == second == third != other


async def test_a_refusal_is_not_repeated() -> None:
    router = ScriptedRouter()
    router.failures = [TriptychError(Reason.OVERLOADED, "too much", metadata={"limit_s": "45"}, retry_after_s=3.0)]
    async with served(router) as address, Client(address, patience=QUICK) as client:
        with pytest.raises(TriptychError) as refused:
            await client.submit(SPEC)
    assert (refused.value.reason, refused.value.retry_after_s) == (Reason.OVERLOADED, 3.0)
    assert refused.value.metadata == {"limit_s": "45"}
    assert len(router.request_ids) == 1


async def test_patience_ends() -> None:
    router = ScriptedRouter()
    router.failures = [AWAY] * 1000
    async with served(router) as address, Client(address, patience=QUICK) as client:
        with pytest.raises(TriptychError, match="NATS is away"):
            await client.submit(SPEC)
        with pytest.raises(TriptychError, match="NATS is away"):
            await anext(client.watch(JOB))


async def test_nobody_there_is_an_error_of_ours() -> None:
    async with Client("127.0.0.1:9", patience=QUICK) as client:
        for call in (client.fleet(), client.download(JOB), anext(client.watch(JOB))):
            with pytest.raises(TriptychError) as caught:
                await call
            assert caught.value.reason is Reason.UNREACHABLE


async def test_a_download_begins_again_when_it_breaks() -> None:
    router = ScriptedRouter()
    router.failures = [None, AWAY]
    async with served(router) as address, Client(address, patience=QUICK) as client:
        media = await client.download(JOB, 2)
    assert (media.data, media.output.index) == (b"picture", 2)


async def test_jobs_come_page_by_page_up_to_the_limit() -> None:
    async with served(ScriptedRouter()) as address, Client(address) as client:
        assert [job.job_id for job in await client.jobs(limit=320)] == [str(number) for number in range(320)]
        assert len(await client.jobs(limit=10_000)) == 450


async def test_a_cancelled_task_cancels_its_job() -> None:
    router = ScriptedRouter()
    router.hold_at = 2
    async with served(router) as address, Client(address, patience=QUICK) as client:
        generation = asyncio.create_task(client.generate(SPEC))
        await router.holding.wait()
        generation.cancel()
        with pytest.raises(asyncio.CancelledError):
            await generation
    assert router.cancelled == [JOB]


async def test_leaving_a_stream_early_cancels_its_job_and_its_end_does_not() -> None:
    router = ScriptedRouter()
    async with served(router) as address, Client(address, patience=QUICK) as client:
        async with contextlib.aclosing(client.stream(SPEC)) as items:
            await anext(items)
        assert router.cancelled == [JOB]
        kinds = [type(item) async for item in client.stream(SPEC)]
    assert kinds == [job_pb2.Job, *[job_pb2.JobEvent] * (STEPS + 1)]
    assert Media not in kinds
    assert router.cancelled == [JOB]


async def test_a_router_that_does_not_answer_is_left_for_the_next() -> None:
    first, second = ScriptedRouter(), ScriptedRouter()
    first.failures = [TriptychError(Reason.DRAINING, "another will answer")]
    async with served(first) as one, served(second) as two:
        async with served(ScriptedRouter()) as dead:
            pass
        async with Client(f"{dead},{one}, {two}", patience=QUICK) as client:
            assert (await client.submit(SPEC)).job_id == JOB
            assert [event.sequence async for event in client.watch(JOB)] == list(range(1, STEPS + 2))
    assert first.request_ids == second.request_ids
    assert (first.watched_from, second.watched_from) == ([], [0])
