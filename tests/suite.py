"""A whole suite for tests: real processes, kept by a supervisor in a thread of its own.

So it can be shared by tests whatever event loop they run in, and be used from tests that run in none.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from triptych.exchange import ExchangeConfig
from triptych.supervisor import RestartPolicy, Suite, SuiteConfig, default_catalog

CATALOG = default_catalog() or Path("models/models.toml")
WAIT_S = 90.0
ROOMY = Path(__file__).with_name("roomy_router.toml")

_Result = TypeVar("_Result")


class RunningSuite:
    """A running suite. Each method returns when what it asks for has happened, within `WAIT_S`.

    Names of processes: "nats", "router", "encoder-0", "denoiser-0", "decoder-0", ….
    """

    def __init__(self, suite: Suite, loop: asyncio.AbstractEventLoop) -> None:
        self._suite = suite
        self._loop = loop

    @property
    def address(self) -> str:
        """`host:port` of the router."""
        return self._suite.address

    @property
    def exchange(self) -> ExchangeConfig:
        """A way to NATS with the router's rights."""
        return self._suite.exchange

    @property
    def state_dir(self) -> Path:
        """Its folder; `logs/` has a file for each process."""
        return self._suite.config.state_dir

    @property
    def names(self) -> list[str]:
        """All processes."""
        return list(self._suite.processes)

    @property
    def token_file(self) -> Path | None:
        """A token of an admin's; None where the router asks for none."""
        return self._suite.token_file

    def pid(self, name: str) -> int | None:
        """Process id; None while it is down."""
        return self._suite.processes[name].pid

    def worker_address(self, name: str) -> str:
        """`host:port` at which one process listens."""
        return self._suite.processes[name].address or ""

    def log(self, name: str) -> str:
        """The last lines that a process wrote."""
        return "\n".join(self._suite.processes[name].log.tail)

    def kill(self, name: str) -> None:
        """SIGKILL. It starts again by itself unless restarts are off."""
        self._run(self._suite.kill(name))

    def stop(self, name: str) -> None:
        """SIGTERM, and wait for its end; it stays down until `start`."""
        self._run(self._suite.stop_one(name))

    def start(self, name: str) -> None:
        """Start what is down, and wait until it is ready."""
        self._run(self._suite.start_one(name))

    def restart(self, name: str) -> None:
        """Stop and start."""
        self._run(self._suite.restart(name))

    def scale(self, role: str, count: int) -> None:
        """Have so many of "encoder", "denoiser" or "decoder"."""
        self._run(self._suite.scale(role, count))

    def wait_ready(self, *names: str) -> None:
        """Wait until these, or all, are ready and the router sees their workers."""
        self._run(self._suite.wait_ready(*names))

    @contextmanager
    def no_restarts(self) -> Iterator[None]:
        """What dies meanwhile stays down until `start`."""
        self._set_restarts(False)
        try:
            yield
        finally:
            self._set_restarts(True)

    def _set_restarts(self, enabled: bool) -> None:
        async def set_there() -> None:
            self._suite.set_restarts(enabled)

        self._run(set_there())

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)


@contextmanager
def running_suite(
    state_dir: Path,
    *,
    listen: str = "127.0.0.1:0",
    routers: int = 1,
    encoders: int = 1,
    denoisers: int = 1,
    decoders: int = 1,
    catalog: Path = CATALOG,
    router_config: Path = ROOMY,
    flags: Mapping[str, Sequence[str]] | None = None,
    auth: bool | None = None,
    tls: Path | None = None,
    restarts: RestartPolicy | None = None,
) -> Iterator[RunningSuite]:
    """Start a suite and wait until every worker takes jobs; at the end stop it. One start takes 5 to 15 seconds.

    `flags` are further flags per role: `{"router": ["--log_level", "debug"]}`.
    """
    config = SuiteConfig(
        state_dir=state_dir,
        catalog=catalog,
        listen=listen,
        routers=routers,
        encoders=encoders,
        denoisers=denoisers,
        decoders=decoders,
        router_config=router_config,
        device="cpu",
        threads=1,
        stage_threads=1,
        drain_s=5.0,
        start_timeout_s=WAIT_S,
        flags=flags or {},
        auth=auth,
        tls=tls,
        restarts=restarts or RestartPolicy(first_pause_s=0.1),
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="suite", daemon=True)
    thread.start()
    suite = Suite(config)
    try:
        asyncio.run_coroutine_threadsafe(suite.start(), loop).result(WAIT_S + 10)
        yield RunningSuite(suite, loop)
    finally:
        # The thread must outlive the processes: they end with it.
        asyncio.run_coroutine_threadsafe(suite.stop(), loop).result(WAIT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
