"""A NATS server that asks who is there."""

from tests.natsd import NatsServer
from triptych.exchange import Entry, ExchangeConfig
from triptych.supervisor.secrets import Secrets
from triptych.tls import TlsFiles

BUNDLE = {"file": Entry(b"x" * 3_000_000)}  # in chunks


class Guarded:
    """A server with users, and the files that name them."""

    def __init__(self, server: NatsServer, secrets: Secrets) -> None:
        self.server = server
        self.secrets = secrets

    def config(self, role: str, tls: TlsFiles | None = None) -> ExchangeConfig:
        return ExchangeConfig(
            url=self.server.url,
            user=role,
            password_file=self.secrets.password(role),
            manage_streams=role == "router",
            tls=tls or TlsFiles(),
            connect_timeout_s=5.0,
            answer_timeout_s=2.0,
        )
