"""Merging through the whole suite: a denoiser that finds it pays says so, and is brought jobs of that kind together."""

import asyncio

from tests.integration.whole.jobs import job
from tests.suite import RunningSuite
from triptych.client import Client
from triptych.exchange import Exchange
from triptych.v1.job_pb2 import STAGE_DENOISE, JobSpec
from triptych.v1.router_service_pb2 import Decision
from triptych.v1.worker_pb2 import WorkerHeartbeat

WAIT_S = 90
KIND = "shapes/96x96x1"


def mergeable(seed: int, **fields: int) -> JobSpec:
    return job("shapes", seed=seed, reproducible=False, **fields)


async def learnt(suite: RunningSuite) -> None:
    """Until the denoiser announces that jobs of this kind are worth computing together."""
    async with Exchange(suite.exchange) as exchange:
        heard = await exchange.control.subscribe("triptych.v1.heartbeat.denoise.*")
        while KIND not in WorkerHeartbeat.FromString((await heard.next_msg(timeout=10)).data).merge_keys:
            pass


async def decisions_about(client: Client, *specs: JobSpec) -> tuple[list[str], list[Decision]]:
    """Submit these, and hear what is decided until all of them are over."""
    decisions: list[Decision] = []
    watching = client.watch_fleet(0.1)
    assert (await anext(watching)).HasField("snapshot")
    job_ids = [(await client.submit(spec)).job_id for spec in specs]
    async for told in watching:
        if told.HasField("decision"):
            decisions.append(told.decision)
            if sum(decision.kind == "finished" for decision in decisions) == len(specs):
                break
    await watching.aclose()
    return job_ids, decisions


async def test_jobs_that_gain_by_it_are_brought_together(client: Client, tiny_suite: RunningSuite) -> None:
    async with asyncio.timeout(WAIT_S):
        # Outputs of one job are of one kind too: with them the denoiser finds out what merging brings.
        await client.generate(mergeable(1, output_count=4, step_count=30))
        await learnt(tiny_suite)
        (first, second), decisions = await decisions_about(
            client, mergeable(2, step_count=60), mergeable(3, step_count=60)
        )
    started = [each for each in decisions if each.kind == "started" and each.stage == STAGE_DENOISE]
    assert [each.job_id for each in started] == [first, second]
    assert "together" in started[1].reason
    order = [(each.kind, each.job_id) for each in decisions]
    assert order.index(("started", second)) < order.index(("finished", first))
