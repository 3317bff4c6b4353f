"""The disk of a whole suite gets full, and has room again."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.whole.jobs import events_of, finished, job, kind_of, reached
from tests.small_disk import SmallDisk, small_disk
from tests.suite import RunningSuite, running_suite
from triptych.client import Client
from triptych.errors import Reason, TriptychError
from triptych.v1.job_pb2 import JOB_STATE_SUCCEEDED

# What a person waits for an answer without asking what is wrong, on a busy machine.
ANSWER_S = 5.0
AGAIN_S = 30.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 96) as disk:
        yield disk


@pytest.fixture
def suite(disk: SmallDisk) -> Iterator[RunningSuite]:
    """All that it keeps is on that disk: NATS's store, logs, the files in which services say where they listen."""
    with running_suite(disk.path / "state", flags={"denoiser": ["--checkpoint_seconds", "0.2"]}) as suite:
        yield suite


async def refusal(client: Client) -> TriptychError:
    """Of the first submit that is refused: what is left of a page may do for some small jobs."""
    for seed in range(1000):
        try:
            async with asyncio.timeout(ANSWER_S):
                await client.submit(job("shapes", step_count=1, seed=seed))
        except TriptychError as error:
            return error
    raise AssertionError("all were accepted")


async def test_a_full_disk_is_named_at_once_and_what_was_accepted_waits_for_room(
    disk: SmallDisk, suite: RunningSuite
) -> None:
    async with Client(suite.address) as client:
        accepted = [await client.submit(job("shapes", step_count=60, seed=seed)) for seed in range(4)]
        await reached(client, accepted[0].job_id, step=10)
        disk.fill()
        for _ in range(3):
            error = await refusal(client)
            assert error.reason is Reason.DISK_FULL
            assert "disk" in error.message
        disk.free()
        async with asyncio.timeout(AGAIN_S):
            logs = await asyncio.gather(*(events_of(client, each.job_id) for each in accepted))
            assert [kind_of(log[-1]) for log in logs] == ["succeeded"] * 4
            assert (await finished(client, job("shapes", step_count=1))).state == JOB_STATE_SUCCEEDED
