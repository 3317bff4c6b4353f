"""What clients write is in no log, whatever becomes of their jobs."""

import io
from typing import Any

from PIL import Image

from tests.integration.whole.jobs import events_of, job, kind_of
from tests.suite import RunningSuite
from triptych.client import Client
from triptych.errors import TriptychError
from triptych.v1.job_pb2 import ATTACHMENT_ROLE_IMAGE, JobSpec, PreviewPolicy

SECRET = "wolverine"
LONG = f"{SECRET} " * 80
TEXTS = {"prompt": LONG, "negative_prompt": LONG}
# Too long, of a wrong type, or more than the blocks know what to do with.
JOBS: list[tuple[str, dict[str, Any]]] = [
    ("shapes", TEXTS),
    ("sdxl", TEXTS),
    ("flux", {"prompt": LONG}),
    ("sd3", TEXTS),
    ("wan", {**TEXTS, "frame_count": 9}),
    ("sdxl", {"prompt": SECRET, "preview": PreviewPolicy(every_steps=1), "extra": {"prompt_2": LONG}}),
    ("sdxl", {"prompt": SECRET, "extra": {"prompt_2": {SECRET: SECRET}}}),
    ("sdxl", {"prompt": SECRET, "extra": {"prompt_2": [SECRET, SECRET]}}),
    ("sdxl", {"prompt": SECRET, "extra": {"negative_prompt_2": [SECRET, SECRET]}, "negative_prompt": SECRET}),
    ("sdxl", {"prompt": SECRET, "extra": {"clip_skip": 1000}}),
    ("flux", {"prompt": SECRET, "extra": {"prompt_2": [[SECRET]]}}),
    ("sd3", {"prompt": SECRET, "negative_prompt": SECRET, "extra": {"negative_prompt_2": [SECRET, SECRET]}}),
]


async def outcome(client: Client, spec: JobSpec) -> str:
    """How the job ended; "refused" if it was not taken."""
    try:
        accepted = await client.submit(spec)
    except TriptychError:
        return "refused"
    return kind_of((await events_of(client, accepted.job_id))[-1])


async def test_no_text_of_a_job_is_in_any_log(client: Client, tiny_suite: RunningSuite) -> None:
    outcomes = [await outcome(client, job(model, **fields)) for model, fields in JOBS]
    outcomes.append(await outcome(client, job("sdxl", prompt=SECRET, width=1, extra={SECRET: SECRET})))
    outcomes.append(await outcome(client, no_step()))
    assert {"succeeded", "failed", "refused"} == set(outcomes)
    logs = {path.name: path.read_text() for path in (tiny_suite.state_dir / "logs").iterdir()}
    assert any("call_failed" in log for log in logs.values())
    assert [name for name, log in logs.items() if SECRET in log] == []


def no_step() -> JobSpec:
    """It fails in the denoiser."""
    file = io.BytesIO()
    Image.effect_noise((64, 64), 80).convert("RGB").save(file, "PNG")
    spec = job("sdxl", prompt=SECRET, step_count=1, extra={"strength": 0.1})
    spec.attachments.add(role=ATTACHMENT_ROLE_IMAGE, media_type="image/png", data=file.getvalue())
    return spec
