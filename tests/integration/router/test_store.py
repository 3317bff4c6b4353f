"""Records, logs and leadership over a real server."""

import asyncio

import pytest

from services.router.access.principal import DEFAULT_TENANT as TENANT
from services.router.access.principal import EVERYONE
from services.router.config import RouterConfig
from services.router.ids import new_job_id
from services.router.leadership.archive import Archive
from services.router.leadership.lease import Deposed, Leadership
from services.router.store.compare_and_set import Conflict
from services.router.store.event_log import EventStore
from services.router.store.records import JobKey, JobStore
from tests.integration.router.recorded import Recorded, record
from triptych.exchange import Exchange
from triptych.v1.job_pb2 import JOB_STATE_SUCCEEDED, JobEvent, JobQueued, JobSpec, JobSucceeded, Progress


def event(job_id: str, sequence: int) -> JobEvent:
    return JobEvent(job_id=job_id, sequence=sequence, progress=Progress(step=sequence))


async def test_only_one_can_append_after_an_event(exchange: Exchange) -> None:
    events, job_id = EventStore(exchange), new_job_id(1.0)
    first = await events.append(event(job_id, 1), 0)
    second = await events.append(event(job_id, 2), first)
    for stale in (0, first):
        with pytest.raises(Conflict):
            await events.append(event(job_id, 3), stale)
    await events.append(event(new_job_id(2.0), 1), 0)
    last = await events.last(job_id)
    assert last is not None
    assert (last.revision, last.event.sequence) == (second, 2)
    assert await events.last(new_job_id(3.0)) is None


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 300])
async def test_a_log_is_read_whole_whatever_its_length(exchange: Exchange, count: int) -> None:
    events, job_id, other = EventStore(exchange), new_job_id(1.0), new_job_id(2.0)
    revision = noise = 0
    revisions = []
    for sequence in range(1, count + 1):
        revision = await events.append(event(job_id, sequence), revision)
        revisions.append(revision)
        noise = await events.append(event(other, sequence), noise)
    read = [stored async for stored in events.read(job_id)]
    assert [stored.event.sequence for stored in read] == list(range(1, count + 1))
    assert [stored.revision for stored in read] == revisions
    if count:
        assert [stored async for stored in events.read(job_id, revisions[-1])] == []
        assert [stored.event.sequence async for stored in events.read(job_id, revisions[0])] == list(
            range(2, count + 1)
        )


async def test_records_are_written_by_their_last_writer_only(exchange: Exchange) -> None:
    store, job_id = JobStore(exchange), new_job_id(1.0)
    assert await store.read(TENANT, job_id) is None
    first = await store.write(record(job_id), 0)
    with pytest.raises(Conflict):
        await store.write(record(job_id), 0)
    second = await store.write(record(job_id), first)
    with pytest.raises(Conflict):
        await store.write(record(job_id), first)
    stored = await store.read(TENANT, job_id)
    assert stored is not None
    assert stored.revision == second
    await store.forget(TENANT, job_id)
    assert await store.read(TENANT, job_id) is None


async def test_job_ids_are_listed_newest_first_and_nothing_else_is(exchange: Exchange) -> None:
    store = JobStore(exchange)
    assert await store.keys() == []
    ids = [new_job_id(float(second)) for second in (5, 1, 3)]
    for job_id in ids:
        await store.write(record(job_id), 0)
        await store.write_spec(job_id, JobSpec(prompt="x"))
    await store.claim("default", "mine", record(ids[0]))
    keys = [JobKey(job_id, TENANT) for job_id in ids]
    assert await store.keys() == sorted(keys, reverse=True)
    assert [stored.record.job.job_id async for stored in store.read_all(keys)] == ids


async def test_a_tenant_finds_its_own_jobs_only(exchange: Exchange) -> None:
    store, mine, theirs = JobStore(exchange), new_job_id(1.0), new_job_id(2.0)
    await store.write(record(mine, "acme"), 0)
    await store.write(record(theirs, "other"), 0)
    assert await store.keys("acme") == [JobKey(mine, "acme")]
    assert await store.read("acme", theirs) is None
    assert await store.keys(job_id=theirs) == [JobKey(theirs, "other")]


async def test_a_request_is_claimed_once(exchange: Exchange) -> None:
    store, mine, theirs = JobStore(exchange), record(new_job_id(1.0)), record(new_job_id(2.0))
    assert await store.claimed("default", "id") is None
    await store.claim("default", "id", mine)
    with pytest.raises(Conflict):
        await store.claim("default", "id", theirs)
    claimed = await store.claimed("default", "id")
    assert claimed is not None
    assert claimed.record.job.job_id == mine.job.job_id


async def test_of_a_request_that_made_another_job_since_the_claim_stays(exchange: Exchange) -> None:
    """A router that died in the midst of it has left the older job without its claim."""
    store, older, newer = JobStore(exchange), record(new_job_id(1.0)), record(new_job_id(2.0))
    older.request_id = newer.request_id = "id"
    await store.write(older, 0)
    await store.claim(TENANT, "id", newer)
    await store.prune(older)
    assert await store.read(TENANT, older.job.job_id) is None
    assert await store.claimed(TENANT, "id") is not None
    await store.prune(newer)
    assert await store.claimed(TENANT, "id") is None


async def test_a_watch_from_the_store_ends_although_the_log_went_before_its_end_was_read(
    exchange: Exchange,
) -> None:
    store, events, made = JobStore(exchange), EventStore(exchange), record(new_job_id(1.0))
    made.job.spec.output_count = 1
    revision = await store.write(made, 0)
    await events.append(event(made.job.job_id, 1), 0)
    archive = Archive(RouterConfig(listen="127.0.0.1:0"), exchange)
    followed = archive.watch.follow(made.job.job_id, 0, EVERYONE)
    first = await anext(followed)
    made.job.state, made.job.last_sequence = JOB_STATE_SUCCEEDED, 2
    await store.write(made, revision)
    await events.purge(made.job.job_id)
    async with asyncio.timeout(10):
        rest = [each async for each in followed]
    assert [(each.sequence, each.WhichOneof("event")) for each in (first, *rest)] == [(1, "progress"), (2, "succeeded")]


async def test_nothing_is_written_after_the_end(exchange: Exchange) -> None:
    it = Recorded(exchange)
    await it.recorder.accept(JobEvent(queued=JobQueued()))
    for step in range(50):
        it.recorder.progress(Progress(step=step, fraction=step / 100))
    it.recorder.write(JobEvent(succeeded=JobSucceeded()))
    it.recorder.write(JobEvent(progress=Progress(step=99)))
    it.recorder.progress(Progress(step=100, fraction=1.0))
    await it.recorder.settle()
    read = [stored.event async for stored in it.events.read(it.job.job_id)]
    assert [each.WhichOneof("event") for each in read] == ["queued", "progress", "progress", "succeeded"]
    assert [each.sequence for each in read] == [1, 2, 3, 4]
    assert read[2].progress.step == 49  # the newest that was held
    assert it.over == [it.job]
    stored = await it.store.read(TENANT, it.job.job_id)
    assert stored is not None
    assert stored.record.job.state == JOB_STATE_SUCCEEDED
    assert stored.record.job.last_sequence == 4


async def test_another_routers_event_deposes(exchange: Exchange) -> None:
    it = Recorded(exchange)
    await it.recorder.accept(JobEvent(queued=JobQueued()))
    later = event(it.job.job_id, 2)
    later.epoch = 99
    await it.events.append(later, it.job.log_revision)
    it.recorder.write(JobEvent(succeeded=JobSucceeded()))
    await it.recorder.settle()
    assert it.deposed
    assert not it.over
    assert [stored.event.sequence async for stored in it.events.read(it.job.job_id)] == [1, 2]


async def test_an_event_whose_answer_was_lost_is_not_written_twice(exchange: Exchange) -> None:
    it = Recorded(exchange)
    await it.recorder.accept(JobEvent(queued=JobQueued()))
    it.job.log_revision = 0  # as if the answer to it had never come
    it.job.record.job.last_sequence = 0
    [first] = [stored.event async for stored in it.events.read(it.job.job_id)]
    assert await it.recorder._own_revision(first) > 0
    with pytest.raises(Conflict):
        await it.recorder._own_revision(event(it.job.job_id, 1))


async def test_a_claimed_request_leaves_no_second_job(exchange: Exchange) -> None:
    first, second = Recorded(exchange, "same"), Recorded(exchange, "same")
    await first.recorder.accept(JobEvent(queued=JobQueued()))
    with pytest.raises(Conflict):
        await second.recorder.accept(JobEvent(queued=JobQueued()))
    await second.recorder.settle()
    assert await second.store.read(TENANT, second.job.job_id) is None
    assert [stored async for stored in second.events.read(second.job.job_id)] == []
    assert not second.deposed


async def test_a_claim_without_a_job_is_taken_over(exchange: Exchange) -> None:
    """Its router died between the two."""
    it = Recorded(exchange, "orphan")
    await it.store.claim("default", "orphan", record(new_job_id(9.0)))
    await it.recorder.accept(JobEvent(queued=JobQueued()))
    claimed = await it.store.claimed("default", "orphan")
    assert claimed is not None
    assert claimed.record.job.job_id == it.job.job_id


async def test_what_a_former_leader_had_on_its_way_is_taken_up(exchange: Exchange) -> None:
    """Written behind while it is no end; nothing follows one."""
    it = Recorded(exchange, epoch=5)
    await it.recorder.accept(JobEvent(queued=JobQueued()))
    straggler = await it.events.append(event(it.job.job_id, 2), it.job.log_revision)
    it.recorder.write(JobEvent(progress=Progress(step=7)))
    await it.recorder.settle()
    assert [stored.event.sequence async for stored in it.events.read(it.job.job_id)] == [1, 2, 3]
    end = JobEvent(job_id=it.job.job_id, sequence=4, succeeded=JobSucceeded())
    assert await it.events.append(end, it.job.log_revision) > straggler
    it.recorder.write(JobEvent(progress=Progress(step=8)))
    await it.recorder.settle()
    read = [stored.event async for stored in it.events.read(it.job.job_id)]
    assert [each.WhichOneof("event") for each in read] == ["queued", "progress", "progress", "succeeded"]
    assert it.over == [it.job]
    assert not it.deposed
    stored = await it.store.read(TENANT, it.job.job_id)
    assert stored is not None
    assert stored.record.job.state == JOB_STATE_SUCCEEDED


async def test_each_leader_has_a_higher_epoch_and_the_old_one_learns(exchange: Exchange) -> None:
    old = Leadership(exchange, "old:1", ttl_s=0.4)
    first = await old.win()
    await old.confirm()
    new = Leadership(exchange, "new:1", ttl_s=0.4)
    async with asyncio.timeout(10):
        assert await new.win() > first
    with pytest.raises(Deposed):
        await old.confirm()
    assert "taken over" in await asyncio.wait_for(old.keep(), 5)
    await new.confirm()


async def test_a_router_that_shares_its_address_is_told_so(exchange: Exchange) -> None:
    """The other took it for its dead predecessor."""
    old, new = Leadership(exchange, "shared:1", ttl_s=0.4), Leadership(exchange, "shared:1", ttl_s=0.4)
    await old.win()
    await new.win()
    why = await asyncio.wait_for(old.keep(), 5)
    assert "it advertises shared:1, as this one does: give each router an address of its own" in why
    await new.resign()


async def test_a_lease_that_is_kept_is_not_taken(exchange: Exchange) -> None:
    """One that is let go is, at once, and so is that of an earlier process on the same address."""
    old = Leadership(exchange, "old:1", ttl_s=0.4)
    epoch = await old.win()
    keeping = asyncio.create_task(old.keep())
    new = Leadership(exchange, "new:1", ttl_s=2.0)
    winning = asyncio.create_task(new.win())
    watcher = await (await exchange.bucket("leader")).watchall()
    async with asyncio.timeout(10):
        async for entry in watcher:
            if entry is not None and (entry.revision or 0) >= epoch + 24:  # longer than the lease that it waits for
                break
    await watcher.stop()
    assert not winning.done()
    assert new.leader == "old:1"
    await old.resign()
    assert await asyncio.wait_for(keeping, 5) == "it was let go"
    assert await asyncio.wait_for(winning, 5) > epoch
    again = Leadership(exchange, "new:1", ttl_s=3600.0)
    assert await asyncio.wait_for(again.win(), 5) > new.epoch


async def test_a_leader_keeps_its_place_beyond_the_keys_life(exchange: Exchange) -> None:
    bucket = await exchange.bucket("leader")
    leader = Leadership(exchange, "here:1", ttl_s=0.2)
    epoch = await leader.win()
    keeping = asyncio.create_task(leader.keep())
    watcher = await bucket.watchall()
    async with asyncio.timeout(5):
        async for entry in watcher:
            if entry is not None and (entry.revision or 0) >= epoch + 3:
                break
    await watcher.stop()
    assert not keeping.done()
    keeping.cancel()
