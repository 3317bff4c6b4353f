"""A supervised process: ready, restarted, given up, drained, and never an orphan."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from triptych.supervisor import RestartPolicy, Service, ServiceState
from triptych.supervisor.config import CommandLines, SuiteConfig
from triptych.supervisor.process import LAUNCHER, Process
from triptych.supervisor.process_log import ProcessLog
from triptych.supervisor.readiness import NatsReadiness, ServiceReadiness
from triptych.supervisor.secrets import Secrets
from triptych.supervisor.suite import Suite, SuiteError

QUICK = RestartPolicy(first_pause_s=0.05, max_pause_s=0.2)
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(99)"
)

# A supervisor whose only child says its process id; then it waits to be killed.
SUPERVISOR = """
import asyncio, sys
from pathlib import Path
from triptych.supervisor.process import Process
from triptych.supervisor.process_log import ProcessLog

async def main():
    process = Process([sys.executable, "-c", "import time; time.sleep(99)"], ProcessLog(Path(sys.argv[1])))
    await process.start()
    print(process.pid, flush=True)
    await process.wait()

asyncio.run(main())
"""
# The same, as on a system without PR_SET_PDEATHSIG.
WATCHER = """
import os, runpy, sys
child = runpy.run_path(sys.argv[1])
print(os.getpid(), flush=True)
child["watch"](os.getppid(), [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(99)"])
"""
PARENT = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]]).wait()
"""

Nats = Callable[[RestartPolicy], Service]


@pytest.fixture
async def nats(tmp_path: Path) -> AsyncIterator[Nats]:
    """Makes services that are nats-servers; stops them."""
    made: list[Service] = []
    (tmp_path / "models.toml").touch()
    secrets = Secrets(tmp_path / "secrets")
    secrets.make()
    commands = CommandLines(SuiteConfig(tmp_path, tmp_path / "models.toml"), tmp_path, tmp_path / "store", secrets)

    def make(policy: RestartPolicy) -> Service:
        log = ProcessLog(tmp_path / "nats.log")
        readiness = NatsReadiness(log, asyncio.Event())
        service = Service("nats", lambda: commands.nats(service.address), readiness, log, policy, _ignore)
        made.append(service)
        return service

    yield make
    for service in made:
        await service.stop(5.0)


def _ignore(service: Service) -> None:
    pass


def _script(tmp_path: Path, code: str, policy: RestartPolicy = QUICK) -> Service:
    log = ProcessLog(tmp_path / "script.log")
    readiness = ServiceReadiness(tmp_path / "script.address")
    return Service("script", lambda: [sys.executable, "-c", code], readiness, log, policy, _ignore)


async def test_a_killed_service_comes_back_at_its_address(nats: Nats) -> None:
    service = nats(QUICK)
    service.start()
    assert await service.wait_for(ServiceState.READY) is ServiceState.READY
    address, first = service.address, service.pid
    service.kill()
    await service.wait_for(ServiceState.WAITING)
    assert "killed by signal 9" in service.detail
    await service.wait_for(ServiceState.READY)
    assert (service.address, service.start_count) == (address, 2)
    assert service.pid != first


async def test_without_restarts_it_stays_down_until_started(nats: Nats) -> None:
    service = nats(RestartPolicy(enabled=False))
    service.start()
    await service.wait_for(ServiceState.READY)
    service.kill()
    assert await service.wait_for(ServiceState.FAILED, ServiceState.WAITING) is ServiceState.FAILED
    service.start()
    await service.wait_for(ServiceState.READY)


async def test_stop_is_final(nats: Nats) -> None:
    service = nats(QUICK)
    service.start()
    await service.wait_for(ServiceState.READY)
    pid = service.pid
    assert pid is not None
    await service.stop(5.0)
    assert service.state is ServiceState.STOPPED
    assert not psutil.pid_exists(pid)


async def test_what_never_came_up_is_given_up_with_its_last_words(tmp_path: Path) -> None:
    service = _script(tmp_path, "print('no such model'); raise SystemExit(1)")
    service.start()
    assert await service.wait_for(ServiceState.FAILED) is ServiceState.FAILED
    assert service.start_count == QUICK.max_first_tries
    assert service.detail == "ended with status 1"
    assert list(service.log.tail) == ["no such model"] * QUICK.max_first_tries


async def test_a_bad_configuration_is_not_tried_again(tmp_path: Path) -> None:
    service = _script(tmp_path, "raise SystemExit(2)")
    service.start()
    await service.wait_for(ServiceState.FAILED)
    assert service.start_count == 1


async def test_a_service_that_will_not_end_is_killed(tmp_path: Path) -> None:
    service = _script(tmp_path, STUBBORN)
    deaf = asyncio.Event()
    service.start()
    service.log.on_line = lambda line: deaf.set()
    await deaf.wait()
    await service.stop(0.1)
    assert service.state is ServiceState.STOPPED


async def test_a_child_is_in_no_terminal_session_of_ours(tmp_path: Path) -> None:
    process = Process([sys.executable, "-c", "import time; time.sleep(99)"], ProcessLog(tmp_path / "x.log"))
    await process.start()
    while process.pid != os.getsid(process.pid):  # noqa: ASYNC110 - the launcher has yet to be run
        await asyncio.sleep(0.01)
    process.kill()
    assert await process.wait() == -signal.SIGKILL


def test_no_child_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(tmp_path / "x.log")], stdout=subprocess.PIPE
    ) as supervisor:
        assert supervisor.stdout is not None
        child = psutil.Process(int(supervisor.stdout.readline()))
        supervisor.kill()
    child.wait(timeout=5)


def test_where_the_kernel_does_not_help_the_launcher_watches() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, WATCHER, str(LAUNCHER)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        processes = [psutil.Process(int(parent.stdout.readline())) for _ in range(2)]
        parent.kill()
        _, alive = psutil.wait_procs(processes, timeout=5)
    assert not alive


async def test_a_suite_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text("[models.x]\nno_such_key = 1\n")
    before = psutil.Process().children(recursive=True)
    suite = Suite(SuiteConfig(tmp_path / "state", tmp_path / "models.toml", restarts=QUICK))
    with pytest.raises(SuiteError, match="no_such_key"):
        async with suite:
            pass
    assert all(service.pid is None for service in suite.processes.values())
    assert psutil.Process().children(recursive=True) == before
