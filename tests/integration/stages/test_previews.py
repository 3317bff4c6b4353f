"""Previews between the stages: they arrive, look like the picture, and change nothing about the job."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats.errors
import numpy as np
import pytest
from PIL import Image

from services.decoder.linear_map import LinearMap
from services.decoder.preview_decoders import BUCKET, VERSION
from services.stage.checkpoint import Checkpoint
from tests.integration.stages.denoise_run import FINISH, Run
from tests.integration.stages.stage_calls import StageCalls, job
from triptych.exchange import Exchange
from triptych.previews import latents_subject, made_subject
from triptych.v1.denoiser_service_pb2 import DenoiseRequest
from triptych.v1.encoder_service_pb2 import StageCall
from triptych.v1.job_pb2 import Amendment, JobSpec, Preview, PreviewPolicy

WAIT_S = 20.0
SHAPES = Path(__file__).parents[3] / "models" / "shapes" / "checkpoint"
# Enough for some to come back before the job ends.
STEPS = 20
EVERY_STEP = PreviewPolicy(every_steps=1, max_side=64)


class Previewing:
    """Makes jobs with previews by hand, and collects what is published of them."""

    def __init__(self, calls: StageCalls, exchange: Exchange) -> None:
        self.calls = calls
        self.exchange = exchange
        self._count = 0

    async def run(self, spec: JobSpec) -> tuple[list[Preview], list[bytes]]:
        """The previews of a job, of which there is one at least, and its files."""
        self._count += 1
        job_id = f"previewed-{self.calls.epoch}-{self._count}"
        encoded = await self.calls.encode(spec)
        async with listening(self.exchange, job_id) as previews:
            request = DenoiseRequest(
                call=StageCall(job_id=job_id, attempt=3, epoch=self.calls.epoch, rank=1.0),
                spec=spec,
                conditioning=encoded.conditioning,
            )
            events = [event async for event in self.calls.denoiser.Denoise(request)]
            async with asyncio.timeout(WAIT_S):
                seen = [await previews.get()]
            while not previews.empty():
                seen.append(previews.get_nowait())
        latents = [event.latents for event in events if event.HasField("latents")]
        decoded = [await self.calls.decode(spec, encoded, each) for each in latents]
        return seen, [await self.calls.file(each) for each in decoded]


@asynccontextmanager
async def listening(exchange: Exchange, job_id: str) -> AsyncIterator["asyncio.Queue[Preview]"]:
    """What is published of a job."""
    previews: asyncio.Queue[Preview] = asyncio.Queue()

    async def hear(message: Any) -> None:
        previews.put_nowait(Preview.FromString(message.data))

    subscription = await exchange.control.subscribe(made_subject(job_id), cb=hear)
    await exchange.control.flush()
    yield previews
    await subscription.unsubscribe()


async def served(exchange: Exchange, checkpoint: Checkpoint) -> None:
    """Wait until a decoder makes previews of a model: it answers, if only to refuse."""
    async with asyncio.timeout(WAIT_S * 2):
        while True:
            try:
                await exchange.control.request(latents_subject(checkpoint.fingerprint), b"", timeout=WAIT_S)
            except nats.errors.NoRespondersError:
                await asyncio.sleep(0.05)  # a pause between two calls
            else:
                return


@pytest.fixture
def previewing(calls: StageCalls, exchange: Exchange) -> Previewing:
    return Previewing(calls, exchange)


def frames(preview: Preview) -> list[np.ndarray]:
    """The pixels of each frame; the file is what the message says it is."""
    file = Image.open(io.BytesIO(preview.data), formats=["WEBP"])
    assert file.size == (preview.width, preview.height)
    assert getattr(file, "n_frames", 1) == preview.frame_count
    found = []
    for index in range(preview.frame_count):
        file.seek(index)
        found.append(np.asarray(file.convert("RGB"), dtype=np.float64))
    return found


@pytest.mark.parametrize(
    ("model", "more", "frame_count"),
    [
        ("sdxl", {}, 1),
        ("flux", {}, 1),
        ("sd3", {}, 1),
        ("wan", {"frame_count": 9}, 3),
    ],
)
async def test_they_arrive_and_the_output_has_the_same_bits(
    previewing: Previewing, tiny_checkpoints: Path, model: str, more: dict[str, Any], frame_count: int
) -> None:
    await served(previewing.exchange, Checkpoint(model, str(tiny_checkpoints / model)))
    plain = job(model, step_count=STEPS, **more)
    previewed = JobSpec()
    previewed.CopyFrom(plain)
    previewed.preview.CopyFrom(EVERY_STEP)
    seen, files = await previewing.run(previewed)
    assert files == await previewing.calls.files(plain)
    for preview in seen:
        assert (preview.attempt, preview.output_index, preview.step_count) == (3, 0, STEPS)
        assert 1 <= preview.step < STEPS
        assert (preview.width, preview.height) == (64, 64)
        assert len(frames(preview)) == frame_count
    assert [preview.step for preview in seen] == sorted({preview.step for preview in seen})


async def test_the_linear_map_has_the_pictures_colours(previewing: Previewing) -> None:
    """Of the embedded model, whose tiny decoder this catalog leaves out."""
    await served(previewing.exchange, Checkpoint("shapes", str(SHAPES)))
    fields = {"prompt": "a blue square on a yellow ground", "width": 96, "height": 96, "step_count": STEPS}
    spec = job("shapes", guidance=2.5, preview=EVERY_STEP, **fields)
    seen, [file] = await previewing.run(spec)
    [pixels] = frames(seen[-1])
    picture = Image.open(io.BytesIO(file)).convert("RGB").resize((12, 12), Image.Resampling.BOX)
    shown = Image.fromarray(pixels.astype(np.uint8)).resize((12, 12), Image.Resampling.BOX)
    assert np.corrcoef(np.ravel(picture), np.ravel(shown))[0, 1] > 0.5


async def test_a_map_is_kept_for_all_decoders(previewing: Previewing) -> None:
    checkpoint = Checkpoint("shapes", str(SHAPES))
    await served(previewing.exchange, checkpoint)
    bucket = await previewing.exchange.bucket(BUCKET)
    stored = await bucket.get(f"{checkpoint.fingerprint}-{VERSION}")
    assert LinearMap.from_bytes(stored.value or b"").weights.shape == (3, 9)


async def test_of_an_amended_job_and_of_its_refinement(previewing: Previewing, tiny_checkpoints: Path) -> None:
    """They count the steps as amended, none is of the last step, and a refinement's go on where it begins."""
    await served(previewing.exchange, Checkpoint("sdxl", str(tiny_checkpoints / "sdxl")))
    calls, spec = previewing.calls, job("sdxl", step_count=400, preview=EVERY_STEP)
    encoded = await calls.encode(spec)
    run = Run(calls, spec, encoded)
    async with listening(previewing.exchange, run.call.job_id) as previews, asyncio.timeout(WAIT_S):
        await previews.get()
        await run.amend(Amendment(step_count=450))
        while (preview := await previews.get()).step_count != 450:
            assert preview.step_count == 400
        await run.amend(FINISH)
        [latents] = await run.end()
        last, count = run.steps[-1][1:]
        assert last == count
        assert preview.step < count

    spec.step_count = count + 400
    refined = Run(calls, spec, encoded, refined_latents=[latents], refined_step_count=count)
    async with listening(previewing.exchange, refined.call.job_id) as previews, asyncio.timeout(WAIT_S):
        preview = await previews.get()
        assert count < preview.step < preview.step_count == count + 400
        await refined.amend(FINISH)
        await refined.end()
