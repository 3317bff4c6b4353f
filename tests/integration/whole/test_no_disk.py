"""Services that cannot write a single file, and have neither a temporary folder nor a home, do all their work."""

import asyncio
import io
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import av
import pytest
from PIL import Image

from tests.integration.whole.jobs import events_of, finished, job
from tests.natsd import NatsServer
from triptych.client import Client
from triptych.v1.job_pb2 import JOB_STATE_SUCCEEDED, MEDIA_FORMAT_MP4, PreviewPolicy

WAIT_S = 90.0
STAGES = ("encoder", "denoiser", "decoder")
# What names a place to write to.
PLACES = ("HOME", "XDG_CACHE_HOME", "HF_HOME", "TEMP", "TMP", "TMPDIR")


@asynccontextmanager
async def sealed(service: str, *flags: str) -> AsyncIterator[str]:
    """One service, once it is ready; its address."""
    environment = {name: value for name, value in os.environ.items() if name not in PLACES}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"services.{service}", "--listen=127.0.0.1:0", *flags),
        env={**environment, "TMPDIR": "/nonexistent"},
        stderr=asyncio.subprocess.PIPE,
        # Of any file that is written the first byte is too many.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(WAIT_S):
            address = await _ready(process.stderr)
        reading = asyncio.create_task(process.stderr.read())
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), WAIT_S)
    assert b"Traceback" not in await reading


async def _ready(log: asyncio.StreamReader) -> str:
    address, said = "", b""
    async for line in log:
        said += line
        event = json.loads(line) if line.startswith(b"{") else {"event": ""}
        address = event.get("address", address)
        if event["event"] in ("worker_ready", "router_ready"):
            return str(address)
    raise AssertionError(said.decode())


@pytest.fixture
async def client(tiny_checkpoints: Path, nats_server: NatsServer) -> AsyncIterator[Client]:
    flags = (f"--catalog={tiny_checkpoints / 'models.toml'}", f"--exchange.url={nats_server.url}")
    async with AsyncExitStack() as stack:
        # Flux is left to be counted, which is remembered where that can be written.
        more = ("--models=wan,flux", "--threads=1", "--device=cpu")
        services = [sealed("router", *flags), *(sealed(stage, *flags, *more) for stage in STAGES)]
        address, *_ = await asyncio.gather(*(stack.enter_async_context(each) for each in services))
        yield await stack.enter_async_context(Client(address))


async def test_every_service_does_without_a_disk(client: Client) -> None:
    image, video = job("flux"), job("wan", output_format=MEDIA_FORMAT_MP4, preview=PreviewPolicy(every_steps=1))
    accepted = await client.submit(video)
    await events_of(client, accepted.job_id)
    done = await client.job(accepted.job_id)
    assert done.state == JOB_STATE_SUCCEEDED, done.error
    async with asyncio.timeout(WAIT_S):
        made = await finished(client, image)
    assert made.state == JOB_STATE_SUCCEEDED, made.error
    with av.open(io.BytesIO((await client.download(done.job_id)).data)) as container:
        assert len(list(container.decode(video=0))) == 9
    assert Image.open(io.BytesIO((await client.download(made.job_id)).data)).size == (64, 64)
