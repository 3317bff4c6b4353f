"""Two workers that are given one id: the later is refused by name, and the first goes on undisturbed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.router.process import RouterProcess
from tests.integration.whole.jobs import events_of, job, kind_of
from tests.natsd import NatsServer
from tests.workers import WorkerProcess
from triptych.client import Client
from triptych.exchange import Exchange
from triptych.v1.worker_pb2 import WorkerHeartbeat

LONG = {"step_count": 150, "output_count": 4, "prompt": "a small yellow circle"}


@pytest.fixture
async def router(tiny_checkpoints: Path, nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[RouterProcess]:
    catalog = str(tiny_checkpoints / "models.toml")
    async with RouterProcess(nats_server.url, tmp_path / "router.address", catalog=catalog) as router:
        yield router


@pytest.mark.parametrize("stage", ["denoiser", "encoder"])
async def test_the_later_of_two_workers_with_one_id_is_refused_by_name(
    stage: str,
    router: RouterProcess,
    tiny_checkpoints: Path,
    nats_server: NatsServer,
    exchange: Exchange,
    tmp_path: Path,
) -> None:
    def worker(stage: str, folder: str = "") -> WorkerProcess:
        (tmp_path / folder).mkdir(exist_ok=True)
        catalog = tiny_checkpoints / "models.toml"
        return WorkerProcess(stage, f"{stage}-x", catalog, nats_server.url, tmp_path / folder, "--models=shapes")

    crew = [worker(each) for each in ("encoder", "denoiser", "decoder")]
    twin = worker(stage, "twin")
    with contextlib.ExitStack() as ends:
        for each in crew:
            each.start()
            ends.callback(each.kill)
        for each in crew:
            await each.ready(exchange)
        first = next(each for each in crew if each.worker_id == twin.worker_id)
        async with Client(router.address) as client:
            running = await client.submit(job("shapes", **LONG))
            subject = f"triptych.v1.heartbeat.*.{twin.worker_id}"
            heartbeats = await exchange.control.subscribe(subject)
            twin.start()
            ends.callback(twin.kill)
            async with asyncio.timeout(60):
                async for message in heartbeats.messages:
                    beat = WorkerHeartbeat.FromString(message.data)
                    if beat.address != first.address:
                        break
            later = [await client.submit(job("shapes", prompt=f"a red circle {n}", step_count=40)) for n in range(3)]
            logs = [await events_of(client, each.job_id) for each in (running, *later)]
        assert [kind_of(log[-1]) for log in logs] == ["succeeded"] * 4
        assert [log[-1].attempt for log in logs] == [1] * 4
        assert not router.logged("worker_lost")
        [refusal] = [line for line in router.log if line["event"] == "worker_refused"]
        assert {refusal["address"], refusal["refused_address"]} == {first.address, beat.address}
        assert "worker_id" in refusal["remedy"]
        # The twin says why it ends, and the first who was there.
        assert twin.wait() == 1
        assert first.address in twin.log.read_text()
        assert "worker_id" in twin.log.read_text().splitlines()[-1]
        assert beat.address in first.log.read_text()
