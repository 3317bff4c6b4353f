"""A suite whose every connection is encrypted and shown for, as `triptych up --tls --auth --routers 2` starts it."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import grpc
import nats
import pytest

from tests.certificates import Authority, needs_openssl
from tests.integration.whole.jobs import job
from tests.suite import RunningSuite, running_suite
from triptych.client import Client
from triptych.errors import Reason, TriptychError, from_rpc_error
from triptych.rpc import Credentials, open_channel
from triptych.rpc.guard import read_token
from triptych.supervisor.certificates import Certificates
from triptych.supervisor.secrets import Secrets
from triptych.tls import TlsFiles, client_context
from triptych.tokens import new_token, token_entry
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import Job, Preview, PreviewPolicy
from triptych.v1.router_service_pb2_grpc import RouterServiceStub
from triptych.v1.worker_pb2 import WORKER_STATE_READY

pytestmark = needs_openssl

# A call of each worker that is answered at once.
WORKER_CALLS = {
    "encoder-0": "/triptych.v1.EncoderService/Encode",
    "denoiser-0": "/triptych.v1.DenoiserService/AmendDenoise",
    "decoder-0": "/triptych.v1.DecoderService/Decode",
}
WAIT_S = 30.0
DENIED, UNREACHABLE = Reason.PERMISSION_DENIED, Reason.UNREACHABLE


class Secured:
    """The running suite, its certificates, and a token of each kind of caller."""

    def __init__(self, suite: RunningSuite, folder: Path) -> None:
        self.suite = suite
        self.certificates = Certificates(folder)
        self.secrets = Secrets(suite.state_dir / "secrets")
        both = ["submit", "read"]
        callers = {"own": ("acme", both), "reader": ("acme", ["read"]), "other": ("rival", both)}
        self.tokens = {name: new_token() for name in callers}
        with self.secrets.tokens_file.open("a") as file:
            file.writelines(token_entry(self.tokens[name], *whose) for name, whose in callers.items())

    @property
    def standby(self) -> str:
        """Name of the router that does not lead."""
        (waiting,) = (name for name in ("router", "router-1") if "router_ready" not in self.suite.log(name))
        return waiting

    def client(self, caller: str = "own", *, router: str = "", tls: TlsFiles | None = None) -> Client:
        address = self.suite.worker_address(router) if router else self.suite.address
        return Client(address, token=self.tokens.get(caller), tls=tls or self.certificates.of("client"))

    async def ready(self) -> None:
        """Wait until the routers see every worker ready."""
        async with asyncio.timeout(WAIT_S), self.client() as client:
            async for told in client.watch_fleet(0.1):
                if [each.state for each in told.snapshot.workers] == [WORKER_STATE_READY] * len(WORKER_CALLS):
                    return


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    with running_suite(folder / "state", tls=folder / "tls", auth=True, routers=2) as suite:
        yield Secured(suite, folder / "tls")


async def answer(address: str, method: str, credentials: Credentials) -> Reason | None:
    """What an empty call is answered."""
    async with open_channel(address, credentials) as channel:
        try:
            await channel.unary_unary(method)(b"", timeout=5)
        except grpc.aio.AioRpcError as error:
            return from_rpc_error(error).reason
    return None


def strangers(secured: Secured, folder: Path, name: str) -> dict[str, TlsFiles | None]:
    """Who is to be let in nowhere: in clear, without a certificate, and with one of another authority."""
    ca, theirs = secured.certificates.of("client").ca, Authority(folder).issue(name)
    return {
        "in clear": None,
        "who shows nothing": TlsFiles(ca=ca),
        "another authority's": TlsFiles(theirs.certificate, theirs.key, ca),
    }


async def test_clients_are_let_in_by_certificate_and_token(secured: Secured, tmp_path: Path) -> None:
    async with secured.client() as client:
        previews, picture = await made(client)
    assert previews, "none came through"
    assert picture.startswith(b"\x89PNG")
    listing = "/triptych.v1.RouterService/ListModels"
    for router in ("router", "router-1"):
        address = secured.suite.worker_address(router)
        for who, tls in strangers(secured, tmp_path / router, "client").items():
            given = Credentials(tls=tls, token=secured.tokens["own"])
            assert await answer(address, listing, given) is UNREACHABLE, who
        shown = secured.certificates.of("client")
        assert await answer(address, listing, Credentials(tls=shown)) is Reason.UNAUTHENTICATED
        assert await answer(address, listing, Credentials(tls=shown, token=new_token())) is Reason.UNAUTHENTICATED


@pytest.mark.parametrize("name", WORKER_CALLS)
async def test_a_worker_lets_in_the_router_alone(secured: Secured, tmp_path: Path, name: str) -> None:
    role = name.partition("-")[0]
    address, method = secured.suite.worker_address(name), WORKER_CALLS[name]
    token = read_token(secured.secrets.worker_token(role))
    for who, tls in strangers(secured, tmp_path, "router").items():
        assert await answer(address, method, Credentials(tls, token, role)) is UNREACHABLE, who
    # Workers have the token too: that is not enough.
    for part in {"client", "nats", "encoder", "denoiser", "decoder"}:
        assert await answer(address, method, Credentials(secured.certificates.of(part), token, role)) is DENIED, part
    router = secured.certificates.of("router")
    assert await answer(address, method, Credentials(router, None, role)) is Reason.UNAUTHENTICATED
    let_in = await answer(address, method, Credentials(router, token, role))
    assert let_in not in (None, DENIED, UNREACHABLE, Reason.UNAUTHENTICATED)  # it is the request that is at fault
    elsewhere = "decoder" if role != "decoder" else "encoder"
    assert await answer(address, method, Credentials(router, token, elsewhere)) is UNREACHABLE


async def test_nats_asks_for_a_certificate_and_a_password(secured: Secured, tmp_path: Path) -> None:
    url = f"nats://{secured.suite.worker_address('nats')}"
    password = secured.secrets.password("router").read_text().strip()

    async def refused(tls: TlsFiles | None, password: str) -> bool:
        async def ignore(_: Exception) -> None:
            """It is raised as well."""

        how = {"tls": client_context(tls), "tls_handshake_first": True} if tls is not None else {}
        try:
            client = await nats.connect(
                url, user="router", password=password, allow_reconnect=False, connect_timeout=2, error_cb=ignore, **how
            )
        except (OSError, TimeoutError, nats.errors.Error):
            return True
        await client.close()
        return False

    for who, tls in strangers(secured, tmp_path, "router").items():
        assert await refused(tls, password), who
    shown = secured.certificates.of("router")
    assert await refused(shown, "wrong")
    assert not await refused(shown, password)


async def test_a_standby_sends_a_call_on_in_its_callers_name(secured: Secured) -> None:
    standby = secured.standby
    async with secured.client(router=standby) as client:
        submitted = await client.submit(job("shapes", step_count=2))
        assert submitted.tenant == "acme"
        await client.amend(submitted.job_id, step_count=3)
    for caller, expected in (("other", Reason.JOB_UNKNOWN), ("reader", DENIED), ("nobody", Reason.UNAUTHENTICATED)):
        async with secured.client(caller, router=standby) as client:
            with pytest.raises(TriptychError) as caught:
                await client.cancel(submitted.job_id)
            assert caught.value.reason is expected, caller
    async with secured.client("other", router=standby) as client:
        assert await client.jobs() == []


async def test_a_call_that_says_it_was_sent_on_is_its_tokens_all_the_same(secured: Secured) -> None:
    """Between routers there is no other door: what marks a call as sent on gives no rights."""
    request = pb.SubmitJobRequest(spec=job("shapes", step_count=2))
    for router in ("router", "router-1"):
        address = secured.suite.worker_address(router)
        for caller, expected in (("", Reason.UNAUTHENTICATED), ("reader", DENIED), ("own", None)):
            for part in ("client", "router"):
                given = Credentials(secured.certificates.of(part), secured.tokens.get(caller))
                submitted = await forged(address, given, request)
                if router == secured.standby and caller == "own":  # it was sent on already: no second time
                    assert submitted is Reason.NOT_READY
                elif expected is None:
                    assert isinstance(submitted, Job)
                    assert submitted.tenant == "acme"
                else:
                    assert submitted is expected, (router, caller, part)


async def forged(address: str, given: Credentials, request: pb.SubmitJobRequest) -> Job | Reason:
    """A call with all that a router adds, and what would name a tenant if anything did."""
    claims = [("triptych-forwarded", "1"), ("triptych-tenant", "rival"), ("tenant", "rival")]
    async with open_channel(address, Credentials(tls=given.tls)) as channel:
        token = [("authorization", f"Bearer {given.token}")] if given.token else []
        try:
            answered = await RouterServiceStub(channel).SubmitJob(request, metadata=[*claims, *token], timeout=15)
        except grpc.aio.AioRpcError as error:
            return from_rpc_error(error).reason
    return answered.job


async def test_another_authority_takes_over_while_it_runs(secured: Secured, tmp_path: Path) -> None:
    suite, earlier = secured.suite, Certificates(tmp_path / "earlier")
    async with secured.client() as client:
        _, before = await made(client)
    folder = secured.certificates.of("client").ca
    assert folder is not None
    shutil.copytree(folder.parent, tmp_path / "earlier")
    Certificates(tmp_path / "new").make()
    for path in sorted((tmp_path / "new").iterdir()):
        path.replace(folder.parent / path.name)
    async with asyncio.timeout(WAIT_S):
        while "Reloaded: tls" not in suite.log("nats"):  # noqa: ASYNC110 - it is a log
            await asyncio.sleep(0.05)
    suite.kill("nats")
    suite.wait_ready()
    await secured.ready()
    for router in ("router", "router-1"):
        async with secured.client(router=router) as client:
            _, after = await made(client)
        assert before == after
        with pytest.raises(TriptychError) as caught:
            async with secured.client(router=router, tls=earlier.of("client")) as client:
                await client.models()
        assert caught.value.reason is UNREACHABLE


async def made(client: Client) -> tuple[list[Preview], bytes]:
    """A picture and the previews on the way to it."""
    accepted = await client.submit(job("shapes", step_count=60, preview=PreviewPolicy(every_steps=1)))
    previews = [item async for item in client.follow(accepted.job_id) if isinstance(item, Preview)]
    return previews, (await client.download(accepted.job_id)).data
