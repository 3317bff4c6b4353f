"""A suite whose every connection is encrypted and shown for: tokens, certificates between services, users of NATS."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.integration.exchange.test_accounts import Guarded
from tests.integration.router.process import RouterProcess
from tests.integration.whole.jobs import job
from tests.natsd import NatsServer
from tests.suite import CATALOG
from tests.workers import WorkerProcess
from triptych.client import Client
from triptych.errors import Reason, TriptychError
from triptych.exchange import Exchange
from triptych.supervisor.secrets import Secrets
from triptych.tls import TlsFiles
from triptych.tokens import new_token, token_entry
from triptych.v1.job_pb2 import Preview, PreviewPolicy
from triptych.v1.worker_pb2 import WORKER_STATE_READY

WORKERS = ("encoder", "denoiser", "decoder")
WAIT_S = 30.0


@dataclass
class Secured:
    """The running suite, and what it takes to talk to it."""

    router: RouterProcess
    workers: list[WorkerProcess]
    nats: NatsServer
    authority: Authority
    token: str

    def client(self, *, token: str | None = None, ca: Path | None = None) -> Client:
        address = f"localhost:{self.router.address.rpartition(':')[2]}"
        return Client(address, token=token or self.token, tls=TlsFiles(ca=ca or self.authority.ca))

    async def renew(self) -> None:
        """New certificates in the place of the old ones, for every part; returns when the router has taken them."""
        for name in ("nats", "router", *WORKERS):
            self.authority.issue(name)
        async with asyncio.timeout(WAIT_S):
            while not self._said("worker_channel_renewed") >= set(self.worker_ids):  # noqa: ASYNC110 - it is a log
                await asyncio.sleep(0.05)
        self.nats.stop()
        self.nats.start()

    async def ready(self) -> None:
        """Wait until the router sees every worker ready."""
        async with asyncio.timeout(WAIT_S), self.client() as client:
            async for told in client.watch_fleet(0.1):
                seen = {each.worker_id for each in told.snapshot.workers if each.state == WORKER_STATE_READY}
                if seen >= set(self.worker_ids):
                    return

    @property
    def worker_ids(self) -> list[str]:
        return [worker.worker_id for worker in self.workers]

    def _said(self, event: str) -> set[str]:
        """Of which workers the router's log has this event."""
        return {line["worker"] for line in self.router.log if line["event"] == event}


def flags(role: str, secrets: Secrets, own: TlsFiles, *, server: str) -> dict[str, str]:
    """What a service shows to its callers (`server`: the settings' name) and to NATS."""
    shown = {"certificate": str(own.certificate), "key": str(own.key), "ca": str(own.ca)}
    return {
        **{f"{server}.{name}": path for name, path in shown.items()},
        **{f"exchange.tls.{name}": path for name, path in shown.items()},
        "exchange.user": role,
        "exchange.password_file": str(secrets.password(role)),
    }


@asynccontextmanager
async def secured(folder: Path) -> AsyncIterator[Secured]:
    authority, secrets, token = Authority(folder / "tls"), Secrets(folder / "secrets"), new_token()
    tls = {name: authority.issue(name) for name in ("nats", "router", *WORKERS)}
    secrets.make()
    named = {"cert_file": tls["nats"].certificate, "key_file": tls["nats"].key, "ca_file": authority.ca}
    files = "".join(f'{key}: "{path}"\n' for key, path in named.items())
    secrets.nats_config.write_text(f"{secrets.nats_config.read_text()}\ntls {{\n{files}verify: true\n}}\n")
    (folder / "tokens.toml").write_text(token_entry(token, "acme", ["submit", "read"]))
    server = NatsServer(folder / "store", secrets.nats_config)
    server.start()
    async with AsyncExitStack() as ends:
        ends.callback(server.stop)
        router = RouterProcess(
            server.url,
            folder / "address",
            **{
                **flags("router", secrets, tls["router"], server="worker_tls"),
                "catalog": str(CATALOG),
                "tokens_file": str(folder / "tokens.toml"),
                "tls.certificate": str(tls["router"].certificate),
                "tls.key": str(tls["router"].key),
            },
        )
        workers = []
        for role in WORKERS:
            own = {**flags(role, secrets, tls[role], server="tls"), "exchange.manage_streams": "false"}
            shown = [f"--{name}={value}" for name, value in own.items()]
            workers.append(WorkerProcess(role, f"{role}-0", CATALOG, server.url, folder, *shown))
            workers[-1].start()
            ends.callback(workers[-1].kill)
        await ends.enter_async_context(router)
        async with Exchange(Guarded(server, secrets).config("router", tls["router"])) as exchange:
            await asyncio.gather(*(worker.ready(exchange) for worker in workers))
        running = Secured(router, workers, server, authority, token)
        await running.ready()
        yield running


async def test_a_picture_before_and_after_all_certificates_are_renewed(tmp_path: Path) -> None:
    async with secured(tmp_path) as suite:
        async with suite.client() as client:
            previews, before = await made(client)
            assert previews, "none came through"
        for stranger in (suite.client(token=new_token()), suite.client(ca=Authority(tmp_path / "theirs").ca)):
            async with stranger as client:
                with pytest.raises(TriptychError) as caught:
                    await client.models()
                assert caught.value.reason in (Reason.UNAUTHENTICATED, Reason.UNREACHABLE)
        await suite.renew()
        await suite.ready()
        async with suite.client() as client:
            _, after = await made(client)
        assert before == after


async def made(client: Client) -> tuple[list[Preview], bytes]:
    """A picture and the previews on the way to it."""
    accepted = await client.submit(job("shapes", step_count=60, preview=PreviewPolicy(every_steps=1)))
    previews = [item async for item in client.follow(accepted.job_id) if isinstance(item, Preview)]
    return previews, (await client.download(accepted.job_id)).data
