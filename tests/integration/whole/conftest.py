"""A whole suite over every tiny checkpoint and the embedded model, shared by the tests of this folder."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import torch

from tests.stock import StockPipelines
from tests.suite import RunningSuite, running_suite
from triptych.client import Client

# One pool with a level that some long jobs reach, however fast this machine is, and two do not, however busy it is.
ROUTER = """
[[scheduler.pools]]
name = "all"
max_backlog_s = 90.0
max_job_s = 3600.0
"""


@pytest.fixture(scope="package")
def tiny_suite(tiny_checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSuite]:
    """One worker a stage, one thread each: leave it as ready as you found it."""
    folder = tmp_path_factory.mktemp("tiny-suite")
    (folder / "router.toml").write_text(ROUTER)
    with running_suite(
        folder / "state",
        router_config=folder / "router.toml",
        catalog=tiny_checkpoints / "models.toml",
        flags={"denoiser": ["--checkpoint_seconds", "0.2", "--progress_seconds", "0"]},
    ) as suite:
        yield suite


@pytest.fixture
async def client(tiny_suite: RunningSuite) -> AsyncIterator[Client]:
    async with Client(tiny_suite.address) as client:
        yield client


@pytest.fixture(scope="session")
def stock(tiny_checkpoints: Path) -> StockPipelines:
    # As the workers were told: results can differ in the last bit with the number of threads.
    torch.set_num_threads(1)
    return StockPipelines(tiny_checkpoints)
