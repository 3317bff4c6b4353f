"""The users of a suite's NATS server: each can do its work, and nothing of another's."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import nats
import pytest

from services.router.leadership.lease import Leadership
from tests.integration.exchange.guarded import BUNDLE, Guarded
from tests.natsd import NatsServer
from triptych.exchange import Exchange, ExchangeConfig, ExchangeUnavailable
from triptych.exchange.accounts import ROLES, permissions
from triptych.exchange.connection import inbox_prefix
from triptych.exchange.store import STREAMS
from triptych.supervisor.secrets import Secrets

WORKERS = ("encoder", "denoiser", "decoder")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    secrets = Secrets(folder / "secrets")
    secrets.make()
    server = NatsServer(folder / "store", secrets.nats_config)
    server.start()
    yield Guarded(server, secrets)
    server.stop()


@pytest.fixture
async def router(guarded: Guarded) -> AsyncIterator[Exchange]:
    async with Exchange(guarded.config("router")) as exchange:
        yield exchange


async def refused(guarded: Guarded, role: str, *, publish: str = "", subscribe: str = "") -> bool:
    """Whether the server refuses it: it says so at once, before it answers a ping."""
    errors: list[Exception] = []

    async def note(error: Exception) -> None:
        errors.append(error)

    client = await nats.connect(
        guarded.server.url,
        user=role,
        password=guarded.secrets.password(role).read_text().strip(),
        inbox_prefix=inbox_prefix(role),
        error_cb=note,
    )
    if publish:
        await client.publish(publish, b"")
    if subscribe:
        await client.subscribe(subscribe)
    for _ in range(2):  # the first ping may be sent ahead of what waits
        await client.flush()
    await client.close()
    assert all("permissions violation" in str(error).lower() for error in errors)
    return bool(errors)


async def test_what_flows_through_a_suite_flows(guarded: Guarded, router: Exchange) -> None:
    async with (
        Exchange(guarded.config("encoder")) as encoder,
        Exchange(guarded.config("denoiser")) as denoiser,
        Exchange(guarded.config("decoder")) as decoder,
    ):
        conditioning = await encoder.put("conditioning", BUNDLE)
        latents = await denoiser.put("latents", BUNDLE)
        output = await decoder.put("outputs", BUNDLE)
        for reader, ref in ((encoder, conditioning), (denoiser, conditioning), (denoiser, latents), (decoder, latents)):
            assert (await reader.get(ref)).keys() == BUNDLE.keys()
        assert (await decoder.get(conditioning)).keys() == (await router.get(output)).keys()
        await denoiser.delete(latents)
        assert not await decoder.exists(latents)  # asked of the leader too
        index = await encoder.bucket("conditioning")
        await index.put("key", b"value")
        assert (await index.get("key")).value == b"value"
        assert (await denoiser.jetstream.stream_info("KV_leader")).config.name == "KV_leader"
        leadership = Leadership(router, "here:1", 10.0)
        assert await leadership.win() > 0


async def test_a_preview_is_answered_across_roles(guarded: Guarded, router: Exchange) -> None:
    async with Exchange(guarded.config("denoiser")) as denoiser, Exchange(guarded.config("decoder")) as decoder:
        made = await router.control.subscribe("triptych.v1.preview.made.*")
        await router.control.flush()

        async def serve(message: nats.aio.msg.Msg) -> None:
            await message.respond(b"made")
            await decoder.control.publish("triptych.v1.preview.made.job", b"picture")

        await decoder.control.subscribe("triptych.v1.preview.latents.*", "decoders", cb=serve)
        await decoder.control.flush()
        assert await answered(denoiser, "triptych.v1.preview.latents.model") == b"made"
        assert (await made.next_msg(timeout=5)).data == b"picture"


@pytest.mark.parametrize(("role", "stage"), [("encoder", "encode"), ("denoiser", "denoise"), ("decoder", "decode")])
async def test_a_worker_hears_what_others_of_its_stage_say_in_its_name(guarded: Guarded, role: str, stage: str) -> None:
    subject = f"triptych.v1.heartbeat.{stage}.x"
    async with Exchange(guarded.config(role)) as one, Exchange(guarded.config(role)) as other:
        heard = await one.control.subscribe(subject)
        await one.control.flush()
        await other.control.publish(subject, b"beat")
        assert (await heard.next_msg(timeout=5)).data == b"beat"


async def answered(exchange: Exchange, subject: str) -> bytes:
    """The answer. The server may think for a moment of a decoder that has just gone."""
    async with asyncio.timeout(5):
        while True:
            try:
                return (await exchange.control.request(subject, b"", timeout=5)).data
            except nats.errors.NoRespondersError:
                await asyncio.sleep(0.05)


PUBLISHES = {
    "tt.conditioning.0.m": {"encoder"},
    "tt.latents.0.m": {"denoiser"},
    "tt.outputs.0.m": {"decoder"},
    "triptych.events.job": set(),
    "$KV.jobs.job.acme.0": set(),
    "$KV.leader.router": set(),
    "$KV.conditioning.key": {"encoder"},
    "$JS.API.DIRECT.GET.CONDITIONING.tt.conditioning.0.m": {"encoder", "denoiser", "decoder"},
    "$JS.API.DIRECT.GET.LATENTS.tt.latents.0.m": {"denoiser", "decoder"},
    "$JS.API.DIRECT.GET.OUTPUTS.tt.outputs.0.m": set(),
    "$JS.API.DIRECT.GET.EVENTS.triptych.events.job": set(),
    "$JS.API.DIRECT.GET.EVENTS": set(),
    "$JS.API.DIRECT.GET.LATENTS": set(),
    "$JS.API.DIRECT.GET.KV_jobs.$KV.jobs.job.acme.0": set(),
    "$JS.API.DIRECT.GET.KV_conditioning.$KV.conditioning.key": {"encoder"},
    "$JS.API.STREAM.MSG.GET.KV_jobs": set(),
    "$JS.API.STREAM.MSG.GET.OUTPUTS": set(),
    "$JS.API.STREAM.CREATE.X": set(),
    "$JS.API.STREAM.UPDATE.LATENTS": set(),
    "$JS.API.STREAM.DELETE.LATENTS": set(),
    "$JS.API.STREAM.PURGE.OUTPUTS": {"decoder"},
    "$JS.API.STREAM.PURGE.LATENTS": {"denoiser"},
    "$JS.API.STREAM.PURGE.KV_jobs": set(),
    "$JS.API.STREAM.INFO.KV_leader": set(WORKERS),
    "$JS.API.STREAM.INFO.KV_jobs": set(),
    "$JS.API.STREAM.LIST": set(),
    "$JS.API.CONSUMER.CREATE.OUTPUTS": set(),
    "triptych.v1.heartbeat.encode.x": {"encoder"},
    "triptych.v1.heartbeat.denoise.x": {"denoiser"},
    "triptych.v1.heartbeat.decode.x": {"decoder"},
    "triptych.v1.preview.latents.x": {"denoiser"},
    "triptych.v1.preview.made.x": {"decoder"},
    "_INBOX.router.x": set(),
    "anything.else": set(),
}
SUBSCRIBES = {
    ">": set(),
    "_INBOX.>": set(),
    "_INBOX.router.>": {"router"},
    "triptych.v1.heartbeat.*.*": {"router"},
    "triptych.v1.heartbeat.encode.x": {"router", "encoder"},
    "triptych.v1.heartbeat.denoise.x": {"router", "denoiser"},
    "triptych.v1.heartbeat.decode.x": {"router", "decoder"},
    "triptych.v1.preview.made.*": {"router"},
    "triptych.v1.preview.latents.*": {"decoder"},
    "triptych.events.*": {"router"},
    "tt.>": set(),
    "$KV.>": set(),
}


async def test_nobody_does_anothers_work(guarded: Guarded, router: Exchange) -> None:
    async def cell(role: str, subject: str, allowed: bool, how: str) -> None:
        assert await refused(guarded, role, **{how: subject}) is not allowed, f"{role} {how} {subject}"

    checks = [cell(role, subject, role in who, "publish") for subject, who in PUBLISHES.items() for role in WORKERS]
    checks += [cell(role, subject, role in who, "subscribe") for subject, who in SUBSCRIBES.items() for role in ROLES]
    for start in range(0, len(checks), 16):
        await asyncio.gather(*checks[start : start + 16])


FOREIGN = ("$KV.jobs.job.acme.forged", "$KV.leader.forged", "triptych.events.forged", "$JS.API.STREAM.PURGE.KV_leader")
OWN_STORES = {"encoder": "conditioning", "denoiser": "latents", "decoder": "outputs"}


@pytest.mark.parametrize("role", WORKERS)
async def test_an_answer_comes_to_nobody_else(guarded: Guarded, router: Exchange, role: str) -> None:
    """A question names where its answer goes; answers would be stored, or acted on, in streams of others."""
    others = [store for each, store in OWN_STORES.items() if each != role]
    targets = [*FOREIGN, *(f"tt.{store}.forged" for store in others)]
    kept = f"tt.{OWN_STORES[role]}.kept"
    await (await router.bucket("leader")).put("kept", b"")
    before = await stored(router)
    client = await nats.connect(
        guarded.server.url,
        user=role,
        password=guarded.secrets.password(role).read_text().strip(),
        inbox_prefix=inbox_prefix(role),
    )
    reached = await router.control.subscribe("triptych.events.forged")
    for target in targets:
        await client.publish(kept, b"{}", reply=target)
        await client.publish(kept, b"{}", headers={"Nats-Trace-Dest": target})
        for subject in permissions(role).asks:
            await client.publish(subject.replace(">", "kept"), b"{}", reply=target)
    # What came before it is done when this is answered.
    await client.request("$JS.API.STREAM.INFO.KV_leader", timeout=5)
    await client.close()
    after = await stored(router)
    own = {STREAMS[OWN_STORES[role]], *(f"KV_{name}" for name in ("conditioning", "preview_maps"))}
    assert {name: count for name, count in after.items() if name not in own} == {
        name: count for name, count in before.items() if name not in own
    }
    assert reached.pending_msgs == 0


async def stored(router: Exchange) -> dict[str, int]:
    """Messages in each stream."""
    return {each.config.name: each.state.messages for each in await router.jetstream.streams_info()}


async def test_who_has_no_password_is_told_so(guarded: Guarded, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong")
    for config in (
        ExchangeConfig(url=guarded.server.url, connect_timeout_s=1.0),
        ExchangeConfig(url=guarded.server.url, user="router", password_file=wrong, connect_timeout_s=1.0),
    ):
        with pytest.raises(ExchangeUnavailable, match="Authorization Violation"):
            await Exchange(config).__aenter__()


async def test_a_worker_waits_for_the_streams(tmp_path: Path) -> None:
    secrets = Secrets(tmp_path / "secrets")
    secrets.make()
    server = NatsServer(tmp_path / "store", secrets.nats_config)
    server.start()
    guarded = Guarded(server, secrets)
    try:
        async with asyncio.TaskGroup() as group:

            async def join() -> None:
                async with Exchange(guarded.config("decoder")) as decoder:
                    await decoder.put("outputs", BUNDLE)

            group.create_task(join())
            async with Exchange(guarded.config("router")) as router:
                assert router.connected
    finally:
        server.stop()
