"""Every call of the router, with requests that nobody would send: none may end as INTERNAL, none may end the router.

A router of its own process, which asks for tokens, real NATS, workers without models. `internal` counts calls that
ended as INTERNAL or UNKNOWN, or without an answer in time; `growth_mb` is by what the router's memory grew after the
first fifth.

    python -m bench.fuzz --json --calls 50000
"""

import asyncio
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import psutil
from google.protobuf.descriptor import MethodDescriptor
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from bench.fuzz_messages import SOME_JOB, noise, requests
from bench.program import options_of, tell
from tests.integration.router.peers import DecoderPeer, DenoiserPeer, EncoderPeer
from tests.integration.router.process import RouterProcess
from tests.natsd import NatsServer
from triptych.exchange import Exchange, ExchangeConfig
from triptych.rpc import Credentials, open_channel
from triptych.tokens import new_token, token_entry
from triptych.v1 import router_service_pb2 as pb

METHODS = list(pb.DESCRIPTOR.services_by_name["RouterService"].methods)
TOGETHER = 25
CALL_S = 10.0
# How long a stream is read that does not end.
STREAM_S = 0.1
# May have nothing to say for as long as its job does nothing.
SILENT = frozenset({"WatchJob"})
BAD = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED})


@dataclass
class Findings:
    """What came back."""

    calls: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    # The first few calls that ended as none may: method, code, message, request.
    bad: list[tuple[str, str, str, str]] = field(default_factory=list)
    internal: Counter[str] = field(default_factory=Counter)
    memory: list[int] = field(default_factory=list)

    @property
    def growth_mb(self) -> float:
        """From the first fifth to the end."""
        return round((self.memory[-1] - self.memory[len(self.memory) // 5]) / 2**20, 1)


class Fuzzer:
    """Sends what is drawn, many at once, and notes what comes back."""

    def __init__(self, channel: grpc.aio.Channel, process: psutil.Process) -> None:
        self._channel = channel
        self._process = process
        self._jobs = ["0" * 26]
        self.findings = Findings()

    async def send(self, drawn: list[tuple[MethodDescriptor, bytes]]) -> None:
        """All of them at once. Raises `psutil.NoSuchProcess` when the router has died."""
        self.findings.memory.append(self._process.memory_info().rss)
        await asyncio.gather(*(self._call(method, data) for method, data in drawn))

    async def _call(self, method: MethodDescriptor, data: bytes) -> None:
        self.findings.calls += 1
        job_id = self._jobs[self.findings.calls % len(self._jobs)]
        # The id's field is at the top of every request that has one: only the length right before it changes with it.
        data = data.replace(b"\x04" + SOME_JOB.encode(), b"\x1a" + job_id.encode())
        path = f"/{method.containing_service.full_name}/{method.name}"
        try:
            if method.server_streaming:
                ended = await _read(self._channel.unary_stream(path)(data, timeout=CALL_S), method.name in SILENT)
                self.findings.codes["OK" if ended else "OPEN"] += 1
                return
            self._learn(method, await self._channel.unary_unary(path)(data, timeout=CALL_S))
            self.findings.codes["OK"] += 1
        except grpc.aio.AioRpcError as error:
            self._note(method, data, error)

    def _note(self, method: MethodDescriptor, data: bytes, error: grpc.aio.AioRpcError) -> None:
        self.findings.codes[error.code().name] += 1
        if error.code() in BAD:
            self.findings.internal[method.name] += 1
            self.findings.bad.append((method.name, error.code().name, error.details() or "", data[:400].hex()))
            del self.findings.bad[20:]

    def _learn(self, method: MethodDescriptor, answer: Any) -> None:
        """Keep the ids of the newest jobs."""
        if method.name == "SubmitJob":
            self._jobs = [*self._jobs[-20:], pb.SubmitJobResponse.FromString(answer).job.job_id]


async def _read(stream: Any, may_be_silent: bool) -> bool:
    """Read a stream up to its end, or for `STREAM_S` past its first message; whether it ended. Raises `AioRpcError`."""
    try:
        if not may_be_silent and await stream.read() is grpc.aio.EOF:
            return True
        async with asyncio.timeout(STREAM_S):
            while await stream.read() is not grpc.aio.EOF:
                pass
        return True
    except TimeoutError:
        return False
    finally:
        stream.cancel()


def calls() -> st.SearchStrategy[list[tuple[MethodDescriptor, bytes]]]:
    """A handful of calls: mostly requests, some noise."""
    one = st.sampled_from(METHODS).flatmap(
        lambda method: st.tuples(
            st.just(method),
            st.one_of(
                requests(method.input_type).map(lambda message: message.SerializeToString()), noise(method.input_type)
            ),
        )
    )
    return st.lists(one, min_size=TOGETHER, max_size=TOGETHER)


def fuzz(count: int, folder: Path, *, draw: int = 0) -> Findings:
    """Make so many calls; what came of them. The same `draw` draws the same requests."""
    with asyncio.Runner() as runner:
        server = NatsServer(folder / "nats")
        server.start()
        try:
            return runner.run(_fuzz(server, count, folder, draw))
        finally:
            server.stop()


async def _fuzz(server: NatsServer, count: int, folder: Path, draw: int) -> Findings:
    token = new_token()
    tokens = folder / "tokens.toml"
    tokens.write_text(token_entry(token, "acme", ["submit", "read"]))
    flags = {"tokens_file": str(tokens), "max_ended_jobs": "20"}
    async with (
        Exchange(ExchangeConfig(url=server.url)) as exchange,
        EncoderPeer(exchange, "encoder-0", slots=16),
        DenoiserPeer(exchange, "denoiser-0", slots=8),
        DecoderPeer(exchange, "decoder-0", slots=8),
        RouterProcess(server.url, folder / "address", **flags) as router,
        open_channel(router.address, Credentials(token=token)) as channel,
    ):
        fuzzer = Fuzzer(channel, psutil.Process(router.pid))
        loop = asyncio.get_running_loop()
        # Hypothesis draws in a thread; the calls are made here.
        await asyncio.to_thread(_draw, fuzzer, loop, count, draw)
        return fuzzer.findings


def _draw(fuzzer: Fuzzer, loop: asyncio.AbstractEventLoop, count: int, draw: int) -> None:
    @seed(draw)
    @settings(
        max_examples=-(-count // TOGETHER),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(calls())
    def send(drawn: list[tuple[MethodDescriptor, bytes]]) -> None:
        asyncio.run_coroutine_threadsafe(fuzzer.send(drawn), loop).result(60)

    send()


def main() -> None:
    """The whole program."""
    parser = options_of(__doc__)
    parser.add_argument("--calls", type=int, default=5_000, help="calls in all (default 5000)")
    parser.add_argument("--draw", type=int, default=0, help="the same number draws the same requests")
    options = parser.parse_args()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = fuzz(options.calls, Path(folder), draw=options.draw)
    result = {
        "benchmark": "fuzz",
        "calls": found.calls,
        "internal": found.internal.total(),
        "internal_by_call": dict(found.internal),
        "growth_mb": found.growth_mb,
        "memory_mb": round(found.memory[-1] / 2**20, 1),
        "codes": dict(found.codes.most_common()),
        "bad": found.bad,
        "seconds": round(time.monotonic() - began_s, 1),
    }
    tell(result, options.json)
    sys.exit(1 if found.internal.total() else 0)


if __name__ == "__main__":
    main()
