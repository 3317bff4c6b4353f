"""TLS between services: who is let in by which certificate, and certificates that are renewed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from tests.certificates import Authority
from tests.integration.rpc.answering import SERVICE, Answering
from triptych.errors import Reason, TriptychError, from_rpc_error
from triptych.rpc import Credentials, RpcServer, open_channel
from triptych.rpc.guard import Guard, PeerName, SharedToken, everyone
from triptych.tls import TlsError, TlsFiles
from triptych.tokens import new_token
from triptych.v1.router_service_pb2_grpc import add_RouterServiceServicer_to_server

UNREACHABLE = Reason.UNREACHABLE


@asynccontextmanager
async def serving(tls: TlsFiles | None = None, guard: Guard = everyone) -> AsyncIterator[str]:
    server = RpcServer("127.0.0.1:0", [SERVICE], guard=guard, tls=tls)
    await server.start(lambda server: add_RouterServiceServicer_to_server(Answering(), server))
    yield server.address
    await server.stop(0)


async def answer(address: str, credentials: Credentials) -> Reason | None:
    """None if the call was served."""
    async with open_channel(address, credentials) as channel:
        try:
            await channel.unary_unary(f"/{SERVICE}/SubmitJob")(b"", timeout=5)
        except grpc.aio.AioRpcError as error:
            return from_rpc_error(error).reason
    return None


async def test_each_end_shows_who_it_is(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    router, decoder, denoiser = (ours.issue(name) for name in ("router", "decoder", "denoiser"))
    stranger = theirs.issue("router")
    async with serving(denoiser, PeerName("router")) as address:
        cases = {
            "the router": (Credentials(router, server_name="denoiser"), None),
            "another worker": (Credentials(decoder, server_name="denoiser"), Reason.PERMISSION_DENIED),
            "a router that looks for another worker": (Credentials(router, server_name="encoder"), UNREACHABLE),
            "who shows nothing": (Credentials(TlsFiles(ca=ours.ca), server_name="denoiser"), UNREACHABLE),
            "a name of another authority": (
                Credentials(TlsFiles(stranger.certificate, stranger.key, ours.ca), server_name="denoiser"),
                UNREACHABLE,
            ),
            "who trusts another authority": (Credentials(stranger, server_name="denoiser"), UNREACHABLE),
            "in clear": (Credentials(), UNREACHABLE),
        }
        for who, (credentials, expected) in cases.items():
            assert await answer(address, credentials) is expected, who


async def test_a_client_checks_the_address_and_needs_no_certificate(tmp_path: Path) -> None:
    router = Authority(tmp_path).issue("router")
    trusting = Credentials(TlsFiles(ca=router.ca))
    async with serving(TlsFiles(router.certificate, router.key)) as address:
        assert await answer(address, trusting) is None
        assert await answer(address.replace("127.0.0.1", "localhost"), trusting) is None
        assert await answer(address, Credentials(TlsFiles(ca=router.ca), server_name="example.org")) is UNREACHABLE


async def test_renewed_files_hold_for_new_connections(tmp_path: Path) -> None:
    old, new = Authority(tmp_path / "old", "old"), Authority(tmp_path / "new", "new")
    router, worker = old.issue("router"), old.issue("denoiser")
    async with serving(worker, PeerName("router")) as address:
        async with open_channel(address, Credentials(router, server_name="denoiser")) as earlier:
            call = earlier.unary_unary(f"/{SERVICE}/SubmitJob")
            await call(b"")
            new.issue("denoiser", into=tmp_path / "old")
            renewed = new.issue("router")
            assert await answer(address, Credentials(renewed, server_name="denoiser")) is None
            await call(b"")  # what is open stays open
        assert worker.key is not None
        whole = worker.key.read_bytes()
        worker.key.write_bytes(whole[:40])  # half written: the earlier ones hold
        assert await answer(address, Credentials(renewed, server_name="denoiser")) is None


async def test_a_token_where_there_is_no_tls() -> None:
    token = new_token()
    async with serving(guard=SharedToken(token)) as address:
        assert await answer(address, Credentials(token=token)) is None
        assert await answer(address, Credentials(token=new_token())) is Reason.UNAUTHENTICATED
        assert await answer(address, Credentials(token=token[:-1])) is Reason.UNAUTHENTICATED
        assert await answer(address, Credentials()) is Reason.UNAUTHENTICATED


async def test_streams_carry_the_token_too() -> None:
    token = new_token()
    async with serving(guard=SharedToken(token)) as address:
        for given, expected in ((token, None), (new_token(), Reason.UNAUTHENTICATED)):
            async with open_channel(address, Credentials(token=given)) as channel:
                stream = channel.unary_stream(f"/{SERVICE}/GenerateMedia")(b"")
                if expected is None:
                    assert await stream.read() == b""
                    continue
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await stream.read()
                assert from_rpc_error(caught.value).reason is expected


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    one, two = Authority(tmp_path / "one").issue("router"), Authority(tmp_path / "two").issue("router")
    with pytest.raises(ValueError, match="belong together"):
        TlsFiles(certificate=one.certificate)
    for files in (TlsFiles(one.certificate, two.key), TlsFiles(ca=tmp_path / "none.pem"), TlsFiles(ca=one.key)):
        with pytest.raises(TlsError, match=str(tmp_path)):
            open_channel("127.0.0.1:1", Credentials(files))


def test_errors_of_tls_are_no_surprise() -> None:
    assert not issubclass(TlsError, TriptychError)  # a matter of settings, not of a call
