"""One worker of each stage, as processes, serving every tiny checkpoint."""

import asyncio
import io
import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.integration.stages.stage_calls import StageCalls
from tests.natsd import NatsServer
from tests.stock import StockPipelines
from tests.workers import WorkerProcess
from triptych.exchange import Exchange, ExchangeConfig
from triptych.v1.job_pb2 import ATTACHMENT_ROLE_IMAGE, Attachment

# Every test is a router of its own, with a term of its own.
EPOCHS = itertools.count(1, 10)
# Every step is told, and may be shown.
FLAGS = {"denoiser": ["--progress_seconds=0", "--preview_spacing_seconds=0"]}
STAGES = ("encoder", "denoiser", "decoder")


@dataclass(frozen=True)
class Workers:
    """The running workers by stage, and what they run on."""

    processes: dict[str, WorkerProcess]
    catalog: Path
    nats: NatsServer
    folder: Path

    def another(self, stage: str, worker_id: str, *flags: str) -> WorkerProcess:
        """One more worker, not started."""
        return WorkerProcess(stage, worker_id, self.catalog, self.nats.url, self.folder, *flags)


async def all_ready(url: str, processes: list[WorkerProcess]) -> None:
    async with Exchange(ExchangeConfig(url=url)) as exchange:
        await asyncio.gather(*(process.ready(exchange) for process in processes))


@pytest.fixture(scope="session")
def stock(tiny_checkpoints: Path) -> StockPipelines:
    return StockPipelines(tiny_checkpoints)


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One for all tests of the stages."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def workers(
    tiny_checkpoints: Path, nats_server: NatsServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("workers")
    catalog = tiny_checkpoints / "models.toml"
    processes = {
        stage: WorkerProcess(
            stage, f"{stage}-1", catalog, nats_server.url, folder, "--drain_seconds=5", *FLAGS.get(stage, ())
        )
        for stage in STAGES
    }
    for process in processes.values():
        process.start()
    asyncio.run(all_ready(nats_server.url, list(processes.values())))
    yield Workers(processes, catalog, nats_server, folder)
    assert [process.terminate() for process in processes.values()] == [0, 0, 0]


@pytest.fixture
async def calls(workers: Workers, exchange: Exchange) -> AsyncIterator[StageCalls]:
    """What the router would do, by hand."""
    addresses = {stage: process.address for stage, process in workers.processes.items()}
    async with StageCalls(addresses, exchange, next(EPOCHS)) as calls:
        yield calls


@pytest.fixture(scope="session")
def picture() -> Attachment:
    """A PNG of noise, 64 × 64."""
    file = io.BytesIO()
    pixels = np.random.RandomState(0).randint(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return Attachment(role=ATTACHMENT_ROLE_IMAGE, media_type="image/png", data=file.getvalue())
