"""Who is missed, and who is not: a router that was held up has not heard what the workers said meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from nats.aio.msg import Msg

from services.router.core.events import Event, WorkerLost
from services.router.core.job import Stage
from services.router.workers import fleet as fleet_module
from services.router.workers import roll as roll_module
from services.router.workers.fleet import Fleet
from services.router.workers.roll import Roll
from triptych.v1.job_pb2 import STAGE_DENOISE, STAGE_ENCODE
from triptych.v1.job_pb2 import Stage as StageMessage
from triptych.v1.worker_pb2 import WORKER_STATE_READY, WorkerHeartbeat

TIMEOUT_S = 0.05


class Clock:
    """Stands still but for `now_s`, and a little at each look."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.tick_s = 0.0
        self._looks: asyncio.Queue[None] = asyncio.Queue()

    def __call__(self) -> float:
        self.now_s += self.tick_s
        self._looks.put_nowait(None)
        return self.now_s

    async def looked(self, times: int) -> None:
        """Wait until it has been looked at so often again."""
        while not self._looks.empty():
            self._looks.get_nowait()
        for _ in range(times):
            await asyncio.wait_for(self._looks.get(), 10)


class SilentClient:
    """NATS, as far as a fleet needs it; nothing comes but what `hear` is told."""

    is_connected = True
    hear: Callable[[Msg], Awaitable[None]]

    def __init__(self) -> None:
        self.subscribed = asyncio.Event()

    async def subscribe(self, subject: str, cb: Callable[[Msg], Awaitable[None]]) -> "SilentClient":
        self.hear = cb
        self.subscribed.set()
        return self

    async def unsubscribe(self) -> None:
        pass


def beat_of(worker_id: str, stage: StageMessage.ValueType = STAGE_DENOISE) -> bytes:
    beat = WorkerHeartbeat(
        worker_id=worker_id, stage=stage, address="127.0.0.1:9", state=WORKER_STATE_READY, sequence=1
    )
    return beat.SerializeToString()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(fleet_module, "monotonic", clock)
    return clock


@pytest.fixture
async def listening(clock: Clock) -> AsyncIterator[tuple[Fleet, "asyncio.Queue[Event]"]]:
    """A fleet of one worker that has just been heard, and what the fleet reports from then on."""
    reports: asyncio.Queue[Event] = asyncio.Queue()
    fleet = Fleet(TIMEOUT_S, reports.put_nowait, lambda _: frozenset(), lambda _: None)
    client: Any = SilentClient()
    running = asyncio.create_task(fleet.run(client))
    await client.subscribed.wait()
    fleet.hear("triptych.v1.heartbeat.denoise.denoiser-0", beat_of("denoiser-0"))
    await reports.get()
    yield fleet, reports
    running.cancel()
    await asyncio.wait([running])
    await fleet.close()


async def test_a_worker_that_is_silent_is_lost(clock: Clock, listening: tuple[Fleet, "asyncio.Queue[Event]"]) -> None:
    _, reports = listening
    # Two looks a turn: less than a turn's own pause.
    clock.tick_s = TIMEOUT_S / 40
    async with asyncio.timeout(10):
        assert await reports.get() == WorkerLost("denoiser-0", death=1)


async def test_so_many_workers_and_no_more(
    monkeypatch: pytest.MonkeyPatch, listening: tuple[Fleet, "asyncio.Queue[Event]"]
) -> None:
    fleet, _ = listening
    monkeypatch.setattr(fleet_module, "MAX_WORKERS", 2)
    for name in ("denoiser-1", "denoiser-2", "denoiser-0"):
        fleet.hear(f"triptych.v1.heartbeat.denoise.{name}", beat_of(name))
    assert [known.worker_id for known in fleet] == ["denoiser-0", "denoiser-1"]


async def test_a_worker_is_not_lost_for_anothers_word(listening: tuple[Fleet, "asyncio.Queue[Event]"]) -> None:
    """Whoever may speak for encoders alone could end all denoises, by the ids of their workers."""
    fleet, reports = listening
    fleet.hear("triptych.v1.heartbeat.encode.denoiser-0", beat_of("denoiser-0", STAGE_ENCODE))
    assert reports.empty()
    [known] = fleet
    assert known.info().stage is Stage.DENOISE


async def test_no_stage_takes_the_places_of_another(
    monkeypatch: pytest.MonkeyPatch, listening: tuple[Fleet, "asyncio.Queue[Event]"]
) -> None:
    fleet, _ = listening
    for module in (fleet_module, roll_module):
        monkeypatch.setattr(module, "MAX_WORKERS", 2)
    client: Any = SilentClient()
    async with Roll(client) as roll:
        for stage, name in [("encode", "a"), ("encode", "b"), ("encode", "c"), ("denoise", "d"), ("neither", "e")]:
            beat = beat_of(name, STAGE_ENCODE if stage == "encode" else STAGE_DENOISE)
            fleet.hear(f"triptych.v1.heartbeat.{stage}.{name}", beat)
            await client.hear(Msg(client, subject=f"triptych.v1.heartbeat.{stage}.{name}", data=beat))
        # Of workers that come and go those of late are there.
        assert [subject.rpartition(".")[2] for subject, _ in roll.fresh(60.0)] == ["b", "c", "d"]
    assert [known.worker_id for known in fleet] == ["a", "b", "d", "denoiser-0"]


async def test_none_is_lost_for_what_a_router_that_was_held_up_did_not_hear(
    clock: Clock, listening: tuple[Fleet, "asyncio.Queue[Event]"]
) -> None:
    fleet, reports = listening
    # Stopped for an hour, in the middle of a turn.
    clock.now_s += 3600.0
    await clock.looked(12)
    assert fleet.get("denoiser-0") is not None
    assert reports.empty()
