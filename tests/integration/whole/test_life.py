"""With real workers: the cache, cancelling, overload, bad input, and the death of the router."""

import asyncio
import math

import pytest
from google.rpc import code_pb2

from tests.integration.whole.jobs import events_of, finished, job, kind_of, reached, steps_of
from tests.suite import RunningSuite
from triptych.client import Client
from triptych.errors import Reason, TriptychError
from triptych.exchange import Exchange
from triptych.v1.job_pb2 import (
    ATTACHMENT_ROLE_IMAGE,
    JOB_STATE_CANCELLED,
    JOB_STATE_QUEUED,
    JOB_STATE_RUNNING,
    JOB_STATE_SUCCEEDED,
    Attachment,
    JobEvent,
    PreviewPolicy,
)
from triptych.v1.worker_pb2 import WorkerHeartbeat

# About 15 s by the catalog's prices, a step in 50 ms or so.
LONG = {"step_count": 150, "guidance": 5.0, "output_count": 2}


async def test_a_second_identical_prompt_runs_no_text_encoder(client: Client, tiny_suite: RunningSuite) -> None:
    first = await finished(client, job("shapes", prompt="a tiny grey dot", step_count=1))
    second = await finished(client, job("shapes", prompt="a tiny grey dot", step_count=2, seed=5))
    tiny_suite.restart("encoder-0")
    tiny_suite.wait_ready()
    third = await finished(client, job("shapes", prompt="a tiny grey dot", step_count=1, seed=6))
    assert [each.conditioning_cached for each in (first, second, third)] == [False, True, True]
    assert second.encode_time.ToNanoseconds() == 0


async def test_a_cancelled_job_stops_and_says_so(client: Client, tiny_suite: RunningSuite) -> None:
    running = await client.submit(job("shapes", **LONG))
    queued = await client.submit(job("shapes", **LONG))
    await reached(client, running.job_id, step=2)
    assert (await client.job(running.job_id)).state == JOB_STATE_RUNNING
    assert (await client.job(queued.job_id)).state == JOB_STATE_QUEUED
    # Cancelling the queued one touches the running one no more than others do.
    assert (await client.cancel(queued.job_id)).state == JOB_STATE_CANCELLED
    assert steps_of(await events_of(client, queued.job_id)) == []
    assert (await client.job(running.job_id)).state == JOB_STATE_RUNNING
    assert (await client.cancel(running.job_id)).state == JOB_STATE_CANCELLED
    assert (await client.cancel(running.job_id)).state == JOB_STATE_CANCELLED
    # The device is free within a step: a short job is done long before the cancelled one could have been.
    short = await finished(client, job("shapes", step_count=1))
    assert short.end_time.ToSeconds() - short.create_time.ToSeconds() < 10
    steps = steps_of(await events_of(client, running.job_id))
    assert max(steps) < LONG["step_count"]
    await idle_again(tiny_suite)


async def test_a_short_job_overtakes_a_long_one_between_steps(client: Client, tiny_suite: RunningSuite) -> None:
    long = await client.submit(job("shapes", **LONG))
    await reached(client, long.job_id, step=1)
    short = await finished(client, job("shapes", step_count=2, seed=1))
    assert short.state == JOB_STATE_SUCCEEDED
    assert (await client.job(long.job_id)).state == JOB_STATE_RUNNING
    await client.cancel(long.job_id)
    await idle_again(tiny_suite)


async def test_a_long_pause_is_told(client: Client, tiny_suite: RunningSuite) -> None:
    long = await client.submit(job("shapes", **LONG))
    await reached(client, long.job_id, step=1)
    # Some seconds of work that ranks ahead.
    await finished(client, job("shapes", step_count=100, seed=1, output_count=1))
    await client.cancel(long.job_id)
    kinds = [kind_of(event) for event in await events_of(client, long.job_id)]
    place = kinds.index("paused")
    assert kinds[place + 1] in ("resumed", "cancelled")
    await idle_again(tiny_suite)


async def test_under_overload_the_longest_are_refused_first(client: Client, tiny_suite: RunningSuite) -> None:
    accepted = []
    refusal = None
    while refusal is None:
        try:
            accepted.append(await client.submit(job("shapes", **LONG)))
        except TriptychError as error:
            refusal = error
        assert len(accepted) < 50
    assert refusal.reason is Reason.OVERLOADED
    assert float(refusal.metadata["backlog_s"]) > float(refusal.metadata["limit_s"])
    assert float(refusal.metadata["estimate_s"]) > 1
    assert refusal.retry_after_s is not None
    assert refusal.retry_after_s > 0
    short = await finished(client, job("shapes", step_count=1, seed=2))
    assert short.state == JOB_STATE_SUCCEEDED
    for each in accepted:
        await client.cancel(each.job_id)
    await idle_again(tiny_suite)


BAD = {
    "an unknown model": ("spec.model", {"model": "nobody"}),
    "a side off the grid": ("spec.width", {"width": 100}),
    "a side out of range": ("spec.height", {"height": 8192}),
    "no steps": ("spec.step_count", {"step_count": 0}),
    "10,000 steps": ("spec.step_count", {"step_count": 10_000}),
    "a prompt of 1 MB": ("spec.prompt", {"prompt": "x" * 1_000_000}),
    "guidance that is no number": ("spec.guidance", {"guidance": math.nan}),
    "an unknown extra": ("spec.extra", {"extra": {"surprise": 1}}),
    "an extra that is ours": ("spec.extra", {"extra": {"num_inference_steps": 5}}),
    "five outputs": ("spec.output_count", {"output_count": 5}),
    "an attachment that is no picture": (
        "spec.attachments[0]",
        {"attachments": [Attachment(role=ATTACHMENT_ROLE_IMAGE, media_type="image/png", data=b"GIF89a")]},
    ),
}


@pytest.mark.parametrize(("field", "fields"), BAD.values(), ids=BAD.keys())
async def test_bad_input_names_the_field(client: Client, field: str, fields: dict[str, object]) -> None:
    with pytest.raises(TriptychError) as caught:
        await client.submit(job(**{"model": "sdxl", **fields}))  # type: ignore[arg-type]
    if field == "spec.model":
        assert caught.value.reason is Reason.MODEL_UNKNOWN
        assert "nobody" in caught.value.message
    else:
        assert caught.value.reason is Reason.INVALID_FIELD
    assert caught.value.reason.code == code_pb2.INVALID_ARGUMENT
    assert any(violation.field.startswith(field) for violation in caught.value.violations)


async def test_what_only_the_model_can_refuse_fails_that_job_alone(client: Client) -> None:
    # One step of an image at strength 0.3 leaves no step to run.
    noise = Attachment(role=ATTACHMENT_ROLE_IMAGE, media_type="image/png", data=PIXEL)
    with pytest.raises(TriptychError, match="no step is left"):
        await client.generate(job("sdxl", step_count=1, attachments=[noise], extra={"strength": 0.3}))
    assert (await finished(client, job("sdxl"))).state == JOB_STATE_SUCCEEDED


async def test_after_the_routers_death_the_next_one_finishes_everything_once(
    client: Client, tiny_suite: RunningSuite
) -> None:
    specs = [job("shapes", step_count=40, seed=seed, prompt=f"job {seed}") for seed in range(4)]
    jobs = [await client.submit(spec) for spec in specs]
    await reached(client, jobs[0].job_id, step=3)
    tiny_suite.kill("router")
    tiny_suite.wait_ready("router")
    logs = await asyncio.gather(*(events_of(client, each.job_id) for each in jobs))
    for log in logs:
        kinds = [kind_of(event) for event in log]
        assert kinds[-1] == "succeeded"
        assert kinds.count("output") == 1
        assert [event.epoch for event in log] == sorted(event.epoch for event in log)
    attempts = [log[-1].attempt for log in logs]
    assert attempts == [2, 1, 1, 1]
    # None ran twice but the one that was interrupted: its steps begin again once.
    for log in logs[1:]:
        assert steps_of(log) == sorted(set(steps_of(log)))
    again = await client.generate(specs[0])
    before = await client.download(jobs[0].job_id)
    assert again[0].data == before.data


async def test_after_a_denoisers_death_its_job_goes_on_from_the_last_checkpoint(
    client: Client, tiny_suite: RunningSuite
) -> None:
    spec = job("shapes", step_count=100, prompt="taken up again")
    accepted = await client.submit(spec)
    await reached(client, accepted.job_id, step=30)
    tiny_suite.kill("denoiser-0")
    tiny_suite.wait_ready()
    log = await events_of(client, accepted.job_id)
    assert kind_of(log[-1]) == "succeeded"
    assert log[-1].attempt == 2
    second = [event.progress.step for event in log if kind_of(event) == "progress" and event.attempt == 2]
    assert second[0] > 1, "it began at the beginning"
    interrupted = await client.download(accepted.job_id)
    [undisturbed] = await client.generate(spec)
    assert interrupted.data == undisturbed.data


async def test_a_decoders_death_costs_a_running_job_its_previews_alone(
    client: Client, tiny_suite: RunningSuite
) -> None:
    plain = job("shapes", step_count=100, prompt="seen in the making")
    spec = job("shapes", step_count=100, prompt="seen in the making", preview=PreviewPolicy(every_steps=1))
    accepted = await client.submit(spec)
    killed, log = False, []
    async for item in client.follow(accepted.job_id):
        if isinstance(item, JobEvent):
            log.append(item)
        elif not killed:
            killed = True
            tiny_suite.kill("decoder-0")
    assert killed, "no preview came"
    assert (kind_of(log[-1]), log[-1].attempt) == ("succeeded", 1)
    tiny_suite.wait_ready()
    [undisturbed] = await client.generate(plain)
    assert (await client.download(accepted.job_id)).data == undisturbed.data


async def idle_again(suite: RunningSuite) -> None:
    """Wait until the denoiser says, in a heartbeat, that it runs nothing."""
    async with asyncio.timeout(20), Exchange(suite.exchange) as exchange:
        heartbeats = await exchange.control.subscribe("triptych.v1.heartbeat.denoise.>")
        async for message in heartbeats.messages:
            if not WorkerHeartbeat.FromString(message.data).active_jobs:
                return


PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108020000009077"
    "53de0000000c4944415408d763f8cfc000000301010018dd8db00000000049454e44ae426082"
)
