"""A catalog with one good model among many that cannot be served, each for another reason."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.broken_checkpoints import FAULTS, break_checkpoints, mend, only_variant
from tests.fake_hub import FakeHub, running_hub
from tests.integration.whole.jobs import job
from tests.suite import RunningSuite, running_suite
from triptych.client import Client
from triptych.errors import Reason, TriptychError
from triptych.v1.job_pb2 import STAGE_DECODE, STAGE_DENOISE, STAGE_ENCODE, Preview, PreviewPolicy
from triptych.v1.router_service_pb2 import Model

TOKEN = "hf_secret"
HUB = {
    "gated": r"gated: set HF_TOKEN, and accept the licence at http://127.0.0.1:\d+/org/gated",
    "unknown": "the hub has no model .*/org/unknown, or it is private: .* set HF_TOKEN",
    "no-revision": "org/open has no such revision",
}
WORDS = {**{name: fault.words for name, fault in FAULTS.items()}, **HUB}
# Its denoiser's host has another folder of it than the other hosts.
SPLIT = "no worker can denoise: unet/diffusion_pytorch_model.safetensors is truncated: download it again"
# The good one, by its folder, by the hub, and with weights of one variant alone.
GOOD = ("good", "hub", "fp16")
WORKERS = ("encoder-0", "denoiser-0", "decoder-0")


@dataclass(frozen=True)
class Served:
    """A suite over such a catalog: `good` is the good checkpoint, the broken ones lie in `folder`."""

    suite: RunningSuite
    hub: FakeHub
    good: Path
    folder: Path


@pytest.fixture(scope="module")
def served(tiny_checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    good, folder = tiny_checkpoints / "sdxl", tmp_path_factory.mktemp("broken")
    break_checkpoints(good, folder)
    mend(good, folder / "halves")
    only_variant(folder / "halves")
    mend(good, folder / "split")
    mend(folder / "truncated", folder / "elsewhere")
    with (
        running_hub({"org/open": good, "org/gated": good}, {"org/gated"}, TOKEN) as hub,
        pytest.MonkeyPatch.context() as env,
    ):
        env.setenv("HF_ENDPOINT", hub.url)
        env.setenv("HF_HOME", str(folder / "hf"))
        flags = {role: ["--retry_seconds", "0.2"] for role in ("encoder", "denoiser", "decoder")}
        flags["denoiser"] += ["--catalog", str(write_catalog(good, folder, split="elsewhere"))]
        with running_suite(folder / "state", catalog=write_catalog(good, folder, split="split"), flags=flags) as suite:
            yield Served(suite, hub, good, folder)


def write_catalog(good: Path, folder: Path, split: str) -> Path:
    """Every broken model, some of the hub, and the good one between them; `split` is a folder of another."""
    entries = {name: f'checkpoint = "{name}"' for name in FAULTS}
    entries["good"] = f'checkpoint = "{good}"\ntiny_decoder = "nowhere"'
    entries["fp16"] = 'checkpoint = "halves"\nvariant = "fp16"'
    entries["hub"] = 'checkpoint = "org/open"\nrevision = "main"'
    entries |= {name: f'checkpoint = "org/{name}"' for name in ("gated", "unknown")}
    entries["no-revision"] = 'checkpoint = "org/open"\nrevision = "v9"'
    entries["split"] = f'checkpoint = "{split}"'
    file = folder / f"{split}.toml"
    file.write_text("\n".join(f"[models.{name}]\n{entry}\n{SMALL.format(name)}" for name, entry in entries.items()))
    return file


SMALL = """dtype = "float32"
[models.{0}.defaults]
step_count = 3
width = 64
height = 64
"""


@pytest.fixture
async def client(served: Served) -> AsyncIterator[Client]:
    async with Client(served.suite.address) as client:
        yield client


async def model_of(client: Client, name: str) -> Model:
    return next(model for model in await client.models() if model.name == name)


async def until_served(client: Client, name: str) -> None:
    """Wait until all three stages serve the model."""
    async with asyncio.timeout(60):
        async for response in client.watch_fleet(0.2):
            if sum(name in worker.models for worker in response.snapshot.workers) == len(WORKERS):
                return


async def preview_of(client: Client, model: str) -> Preview:
    """The first of a long job: they begin when a decoder has made its preview decoder."""
    accepted = await client.submit(job(model, step_count=150, output_count=4, preview=PreviewPolicy(every_steps=1)))
    try:
        async for item in client.follow(accepted.job_id):
            if isinstance(item, Preview):
                return item
    finally:
        await client.cancel(accepted.job_id)
    raise AssertionError("no preview came")


async def test_the_good_ones_are_served_beside_them(client: Client) -> None:
    images = [(await client.generate(job(name)))[0].data for name in GOOD]
    assert images[0] == images[1] == images[2]


@pytest.mark.parametrize("name", WORDS)
async def test_a_model_that_cannot_be_served_is_refused_by_its_reason_at_once(client: Client, name: str) -> None:
    for call in (client.submit, client.estimate):
        with pytest.raises(TriptychError) as caught:
            await call(job(name))
        assert caught.value.reason is Reason.MODEL_UNAVAILABLE
        assert re.search(WORDS[name], caught.value.message)
    model = await model_of(client, name)
    assert [refusal.stage for refusal in model.refusals] == [STAGE_DECODE, STAGE_DENOISE, STAGE_ENCODE]
    assert all(re.search(WORDS[name], refusal.reason) for refusal in model.refusals)
    assert not model.served_stages


async def test_every_worker_says_so_in_its_heartbeat_and_once_in_its_log(client: Client, served: Served) -> None:
    for worker in (await client.fleet()).workers:
        refused_here = {"split"} if worker.stage == STAGE_DENOISE else set()
        assert {refused.name for refused in worker.refused_models} == set(WORDS) | refused_here
        log = (served.suite.state_dir / "logs" / f"{worker.worker_id}.log").read_text()
        for refused in worker.refused_models:
            told = [line for line in log.splitlines() if "model_refused" in line and f'"{refused.name}"' in line]
            assert len(told) == 1, refused.name
            assert str(served.folder) not in refused.reason


async def test_a_model_that_one_stage_cannot_serve_is_refused_by_that_stages_reason(
    client: Client, served: Served
) -> None:
    with pytest.raises(TriptychError, match=SPLIT) as caught:
        await client.submit(job("split"))
    assert caught.value.reason is Reason.MODEL_UNAVAILABLE
    assert caught.value.metadata["workers"] == "denoiser-0"
    assert (await model_of(client, "split")).served_stages == [STAGE_ENCODE, STAGE_DECODE]
    mend(served.good, served.folder / "elsewhere")
    await until_served(client, "split")
    assert (await client.generate(job("split")))[0].data == (await client.generate(job("good")))[0].data
    assert "model_changed" not in served.suite.log("router")


async def test_a_gated_model_is_served_once_there_is_a_token_whose_owner_has_accepted(
    client: Client, served: Served
) -> None:
    served.hub.accepted = False
    (served.folder / "hf" / "token").write_text(TOKEN)
    async with asyncio.timeout(60):
        async for response in client.watch_fleet(0.2):
            reasons = [each.reason for worker in response.snapshot.workers for each in worker.refused_models]
            if sum("accept the licence at" in reason and "whose token" in reason for reason in reasons) == len(WORKERS):
                break
    served.hub.accepted = True
    await until_served(client, "gated")
    [image], [good] = await client.generate(job("gated")), await client.generate(job("good"))
    assert image.data == good.data


@pytest.mark.parametrize("name", ["truncated", "missing", "null", "sd15"])
async def test_a_model_that_is_mended_is_served_without_a_restart(client: Client, served: Served, name: str) -> None:
    before = {worker: served.suite.pid(worker) for worker in WORKERS}
    mend(served.good, served.folder / name)
    await until_served(client, name)
    [mended], [good] = await client.generate(job(name)), await client.generate(job("good"))
    assert mended.data == good.data
    assert not (await model_of(client, name)).refusals
    assert {worker: served.suite.pid(worker) for worker in WORKERS} == before


async def test_previews_are_made_of_a_model_that_was_mended(client: Client, served: Served) -> None:
    mend(served.good, served.folder / "only-fp16")
    await until_served(client, "only-fp16")
    assert (await preview_of(client, "only-fp16")).data


async def test_previews_are_made_without_a_tiny_decoder_that_is_missing(client: Client) -> None:
    assert (await preview_of(client, "good")).data


async def test_what_is_in_the_hubs_cache_is_served_while_the_hub_is_away(client: Client, served: Served) -> None:
    served.hub.away = True
    served.suite.restart("denoiser-0")
    await until_served(client, "hub")
    assert (await client.generate(job("hub")))[0].data == (await client.generate(job("good")))[0].data
    assert "the hub answers" in (await model_of(client, "unknown")).refusals[1].reason
