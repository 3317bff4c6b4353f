"""SIGHUP on a running router: jobs go on, new settings hold at once, bad ones are refused; `triptych fleet --watch`."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.router.bench import WAIT_S, Bench, spec
from tests.integration.router.process import RouterProcess
from tests.natsd import NatsServer
from triptych.errors import Reason, TriptychError
from triptych.exchange import Exchange
from triptych.rpc import Credentials
from triptych.tokens import new_token, token_entry
from triptych.v1 import router_service_pb2 as pb

BEFORE = """
[scheduler]
kappa = 0.0
[[scheduler.pools]]
name = "all"
"""
# Who comes later but is shorter goes first now; and one pool lets nobody in while there is work ahead.
AFTER = """
[scheduler]
kappa = 1e6
[[scheduler.pools]]
name = "sealed"
count = 0
priority_classes = ["batch"]
max_backlog_s = 1e-9
[[scheduler.pools]]
name = "open"
"""


class Operator:
    """A router process with its files, and one who watches it from a command line."""

    def __init__(self, bench: Bench, router: RouterProcess, folder: Path, lines: "asyncio.StreamReader") -> None:
        self.bench = bench
        self.router = router
        self.settings = folder / "router.toml"
        self.tokens = folder / "tokens.toml"
        self._lines = lines
        self.decisions: list[dict[str, Any]] = []

    async def reload(self, text: str, told: str) -> dict[str, Any]:
        """Write the settings and send SIGHUP; the line that the router logs about it."""
        self.settings.write_text(text)
        times = self.router.logged(told)
        self.router.signal(signal.SIGHUP)
        await self.router.until(told, times + 1)
        return [line for line in self.router.log if line["event"] == told][-1]

    async def pools(self) -> list[str]:
        fleet = await self.bench.stub.GetFleet(pb.GetFleetRequest())
        return [pool.name for pool in fleet.pools]

    async def sees_pools(self, *names: str) -> None:
        """Wait until the watching command has shown a snapshot with these pools."""
        while True:
            shown = await self._shown()
            if [pool["name"] for pool in shown.get("snapshot", {}).get("pools", ())] == list(names):
                return

    async def sees_finished(self, count: int) -> None:
        """Wait until the watching command has shown that so many jobs are over."""
        while sum(decision["kind"] == "finished" for decision in self.decisions) < count:
            await self._shown()

    async def _shown(self) -> dict[str, Any]:
        line = await asyncio.wait_for(self._lines.readline(), WAIT_S)
        assert line, "triptych fleet --watch has ended"
        shown: dict[str, Any] = json.loads(line)
        if "decision" in shown:
            self.decisions.append(shown["decision"])
        return shown


@pytest.fixture
async def operator(nats_server: NatsServer, exchange: Exchange, tmp_path: Path) -> AsyncIterator[Operator]:
    """A router whose one denoiser takes one job at a time."""
    token = new_token()
    (tmp_path / "tokens.toml").write_text(token_entry(token, "operations", ["admin"]))
    (tmp_path / "router.toml").write_text(BEFORE)
    flags = {"config": str(tmp_path / "router.toml"), "tokens_file": str(tmp_path / "tokens.toml")}
    async with Bench(nats_server.url, exchange, Credentials(token=token)) as bench:
        await bench.start_peers(slots=1)
        async with RouterProcess(nats_server.url, tmp_path / "address", **flags) as router:
            await bench.connect(router.address)
            await bench.fleet_has({peer.worker_id for peer in bench.peers})
            async with watching(router.address, token) as lines:
                operator = Operator(bench, router, tmp_path, lines)
                await operator.sees_pools("all")
                yield operator


@asynccontextmanager
async def watching(address: str, token: str) -> AsyncIterator[asyncio.StreamReader]:
    """`triptych fleet --watch --json` as a process: what it prints. Ctrl-C ends it."""
    command = [sys.executable, "-m", "triptych.cli", "fleet", "--watch", "--interval", "0.1", "--json"]
    process = await asyncio.create_subprocess_exec(
        *command, "--router", address, "--token", token, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.send_signal(signal.SIGINT)
        _, told = await asyncio.wait_for(process.communicate(), WAIT_S)
    assert (process.returncode, told) == (130, b"triptych: interrupted\n")


async def test_settings_and_tokens_change_while_jobs_run_and_wait(operator: Operator) -> None:
    bench, gate = operator.bench, operator.bench.denoiser.gate
    await gate.open(2)
    running = await bench.submit()
    await gate.reached(3)
    queued = await bench.submit(spec(seed=8))
    await bench.until(queued.job_id, "encoded")

    reloaded = await operator.reload(AFTER, "scheduler_reloaded")
    assert (reloaded["pools"], reloaded["kappa"]) == (["sealed", "open"], 1e6)
    await operator.sees_pools("sealed", "open")
    refused = await bench.refusal(spec(priority_class="PRIORITY_CLASS_BATCH"))
    assert (refused.reason, refused.metadata["pool"]) == (Reason.OVERLOADED, "sealed")
    long = await bench.submit(spec(seed=9, step_count=8))
    short = await bench.submit(spec(seed=10, step_count=1))
    for job in (long, short):
        await bench.until(job.job_id, "encoded")

    await gate.open()
    for job in (running, queued, long, short):
        events = await bench.events(job.job_id)
        assert events[-1].HasField("succeeded")
        assert not any(event.HasField("requeued") for event in events)
    assert bench.denoiser.steps == {running.job_id: 4, queued.job_id: 4, long.job_id: 8, short.job_id: 1}
    await operator.sees_finished(4)
    denoised = [
        decision["job_id"]
        for decision in operator.decisions
        if (decision["kind"], decision["stage"]) == ("started", "STAGE_DENOISE")
    ]
    assert denoised == [running.job_id, queued.job_id, short.job_id, long.job_id]
    assert [decision["reason"][:10] for decision in operator.decisions if decision["kind"] == "rejected"] == [
        "OVERLOADED"
    ]


async def test_bad_files_are_refused_and_the_old_settings_stay(operator: Operator) -> None:
    bench = operator.bench
    bench.denoiser.gate.close()
    job = await bench.submit()
    good = operator.tokens.read_text()
    for text, named in (
        (AFTER.replace("1e6", "-1.0"), "kappa"),
        (AFTER.replace("kappa", "kapa"), "kapa"),
        ("[scheduler", "table declaration"),
    ):
        refused = await operator.reload(text, "reload_refused")
        assert refused["level"] == "error"
        assert named in refused["error"]
        assert await operator.pools() == ["all"]
    operator.settings.unlink()
    operator.router.signal(signal.SIGHUP)
    await operator.router.until("reload_refused", 4)

    operator.tokens.write_text("[[tokens]]\nsha256 = 7\n")
    await operator.reload(BEFORE, "scheduler_reloaded")
    assert operator.router.logged("tokens_unreadable") >= 1
    assert await operator.pools() == ["all"]  # the token that was good still is
    late = new_token()
    operator.tokens.write_text(good + "\n" + token_entry(late, "acme", ["read"]))
    await operator.reload(BEFORE, "scheduler_reloaded")
    async with Bench(bench.nats_url, bench.exchange, Credentials(token=late)) as other:
        await other.connect(operator.router.address)
        with pytest.raises(TriptychError) as hidden:
            await other.job(job.job_id)
        assert hidden.value.reason is Reason.JOB_UNKNOWN

    await bench.denoiser.gate.open()
    assert (await bench.events(job.job_id))[-1].HasField("succeeded")


async def test_what_a_reload_cannot_change_is_named(operator: Operator) -> None:
    text = "page_size = 7\n" + BEFORE
    assert (await operator.reload(text, "settings_hold_after_restart"))["names"] == ["page_size"]
