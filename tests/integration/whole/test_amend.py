"""Jobs amended in a real suite: through the router to the denoiser, over its death, and once they are finished."""

import io

import numpy as np
from PIL import Image

from tests.integration.whole.jobs import events_of, finished, job, kind_of, reached
from tests.stock import frames_of
from tests.suite import RunningSuite
from triptych.client import Client
from triptych.v1.job_pb2 import ATTACHMENT_ROLE_IMAGE, JOB_STATE_SUCCEEDED, Attachment


async def test_an_early_end_and_a_refinement(client: Client) -> None:
    spec = job("shapes", step_count=150)
    accepted = await client.submit(spec)
    await reached(client, accepted.job_id, step=5)
    amended = await client.amend(accepted.job_id, finish_now=True)
    log = await events_of(client, accepted.job_id)
    [event] = [each for each in log if kind_of(each) == "amended"]
    steps = [each.progress for each in log if kind_of(each) == "progress"]
    assert 5 <= event.amended.step_count == amended.spec.step_count < 150
    assert steps[-1].step == steps[-1].step_count <= amended.spec.step_count + 1
    early = frames_of((await client.download(accepted.job_id)).data)
    assert early.std() > 1

    refined = await client.amend(accepted.job_id, step_count=amended.spec.step_count + 10)
    assert refined.refines_job_id == accepted.job_id
    log = await events_of(client, refined.job_id)
    assert kind_of(log[-1]) == "succeeded"
    assert not np.array_equal(frames_of((await client.download(refined.job_id)).data), early)


async def test_from_a_picture_that_is_not_kept(client: Client) -> None:
    file = io.BytesIO()
    Image.effect_noise((64, 64), 80).convert("RGB").save(file, "PNG")
    start = Attachment(role=ATTACHMENT_ROLE_IMAGE, media_type="image/png", data=file.getvalue())
    accepted = await client.submit(job("sdxl", step_count=6, attachments=[start], extra={"strength": 0.5}))
    await events_of(client, accepted.job_id)
    refined = await client.amend(accepted.job_id, step_count=10)
    log = await events_of(client, refined.job_id)
    assert kind_of(log[-1]) == "succeeded"
    # Three of the first job's steps were run, and five of the second's would be.
    steps = [each.progress.step for each in log if kind_of(each) == "progress"]
    assert (steps[0], steps[-1]) == (3, 5)


async def test_a_change_outlives_the_denoiser(client: Client, tiny_suite: RunningSuite) -> None:
    accepted = await client.submit(job("shapes", step_count=150, prompt="amended, then taken up again"))
    await reached(client, accepted.job_id, step=20)
    await client.amend(accepted.job_id, step_count=100)
    await reached(client, accepted.job_id, step=40)
    tiny_suite.kill("denoiser-0")
    tiny_suite.wait_ready()
    log = await events_of(client, accepted.job_id)
    second = [each.progress for each in log if kind_of(each) == "progress" and each.attempt == 2]
    assert second[0].step > 1, "it began at the beginning"
    assert {each.step_count for each in second} == {100}
    assert second[-1].step == 100
    done = await client.job(accepted.job_id)
    assert (done.state, done.spec.step_count) == (JOB_STATE_SUCCEEDED, 100)


async def test_a_queued_job_runs_as_amended(client: Client) -> None:
    first = await client.submit(job("shapes", step_count=60, output_count=1))
    second = await client.submit(job("shapes", step_count=80, seed=4))
    await client.amend(second.job_id, step_count=3)
    assert (await finished(client, job("shapes", step_count=3, seed=4))).state == JOB_STATE_SUCCEEDED
    log = await events_of(client, second.job_id)
    assert [each.progress.step_count for each in log if kind_of(each) == "progress"][-1] == 3
    await events_of(client, first.job_id)
