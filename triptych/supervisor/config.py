"""What a suite consists of, and how each of its processes is called."""

import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from triptych.address import Address
from triptych.exchange import server as nats_server
from triptych.rpc.exposure import is_loopback
from triptych.supervisor.certificates import CLIENT, Certificates
from triptych.supervisor.secrets import Secrets
from triptych.supervisor.service import RestartPolicy
from triptych.tls import TlsFiles

WORKER_ROLES = ("encoder", "denoiser", "decoder")
MAX_WORKERS = 64
MAX_ROUTERS = 8


@dataclass(frozen=True, slots=True)
class SuiteConfig:
    """A suite on this machine. Raises `ValueError` for what cannot work.

    `device` may name several, separated by commas: the workers of a role take them in turn. `threads` are for torch in
    each denoiser, `stage_threads` in each encoder and decoder; None divides the cores. With `auth` the router asks for
    tokens, the first of which the suite makes; None: if other machines can reach it and `router_config` does not say
    how that is meant. `tls` is a folder of certificates for every hop, as `Certificates` has it; what is missing in it
    is made. `flags` are further flags per role ("router", "encoder", …). Times in seconds.
    """

    state_dir: Path
    catalog: Path
    routers: int = 1
    encoders: int = 1
    denoisers: int = 1
    decoders: int = 1
    listen: str = "127.0.0.1:0"
    router_config: Path | None = None
    auth: bool | None = None
    tls: Path | None = None
    device: str = "auto"
    threads: int | None = None
    stage_threads: int | None = None
    drain_s: float = 10.0
    start_timeout_s: float = 180.0
    log_level: str = "info"
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    restarts: RestartPolicy = field(default_factory=RestartPolicy)

    def __post_init__(self) -> None:
        for role in WORKER_ROLES:
            if not 1 <= self.count(role) <= MAX_WORKERS:
                raise ValueError(f"{role}s: from 1 to {MAX_WORKERS}, not {self.count(role)}")
        if not 1 <= self.routers <= MAX_ROUTERS:
            raise ValueError(f"routers: from 1 to {MAX_ROUTERS}, not {self.routers}")
        for path in (self.catalog, self.router_config):
            if path is not None and not path.is_file():
                raise ValueError(f"{path}: no such file")
        if self.drain_s < 0:
            raise ValueError("drain: must not be negative")
        try:
            address = Address.parse(self.listen)
        except ValueError as error:
            raise ValueError(f"listen: {error}") from None
        if not address.host:
            raise ValueError(f"listen: {self.listen!r} is not HOST:PORT")

    @property
    def makes_tokens(self) -> bool:
        """Whether the router asks for tokens, and the suite makes the first."""
        if self.auth is not None:
            return self.auth
        return not is_loopback(self.listen) and not self._router_settings().keys() & {"tokens_file", "insecure"}

    @property
    def router_tls(self) -> TlsFiles | None:
        """What calls from this machine to the router are made with; None where it has no certificate.

        One that `router_config` names trusts itself, and must name localhost, or the IPv6 address that it listens on.
        """
        if self.certificates is not None and not self.has_own_tls:
            return self.certificates.of(CLIENT)
        files = {name: Path(path) for name, path in self._router_settings().get("tls", {}).items()}
        certificate = files.get("certificate")
        if certificate is None:
            return None
        return TlsFiles(certificate, files.get("key"), certificate) if "ca" in files else TlsFiles(ca=certificate)

    @property
    def certificates(self) -> Certificates | None:
        """The folder of `tls`."""
        return Certificates(self.tls) if self.tls is not None else None

    @property
    def has_own_tls(self) -> bool:
        """Whether `router_config` says itself what the router shows its clients."""
        return bool(self._router_settings().get("tls"))

    def _router_settings(self) -> dict[str, Any]:
        return tomllib.loads(self.router_config.read_text(encoding="utf-8")) if self.router_config is not None else {}

    @property
    def loopback(self) -> str:
        """Where NATS and the workers listen: of the router's family, so that a suite can be of IPv6 alone."""
        return Address.parse(self.listen).loopback

    def count(self, role: str) -> int:
        """How many workers of a role it starts with."""
        return {"encoder": self.encoders, "denoiser": self.denoisers, "decoder": self.decoders}[role]


class CommandLines:
    """The command of each process of a suite. `run_dir` takes the files in which services say where they listen.

    Secrets are named by their files: everyone on the machine can read a command line.
    """

    def __init__(self, config: SuiteConfig, run_dir: Path, nats_dir: Path, secrets: Secrets) -> None:
        self._config = config
        self._run_dir = run_dir
        self._nats_dir = nats_dir
        self._secrets = secrets

    def address_file(self, name: str) -> Path:
        """Where the service of this name writes its `host:port`."""
        return self._run_dir / f"{name}.address"

    def nats(self, address: str | None) -> list[str]:
        """A nats-server, on its earlier address if it had one: its clients know no other."""
        port = Address.parse(address).port if address else None
        config = self._config
        clients = config.routers + sum(map(config.count, WORKER_ROLES))
        return nats_server.command_line(
            self._nats_dir, host=config.loopback, port=port, config=self._secrets.nats_config, clients=clients
        )

    def router(self, index: int, address: str | None, exchange_url: str) -> list[str]:
        """The router number `index`, on its earlier address if it had one; else so many ports past the first's."""
        name = router_name(index)
        own = ["--config", str(self._config.router_config.resolve())] if self._config.router_config else []
        own += ["--worker_token_file", str(self._secrets.worker_token("router")), *self._tls("worker_tls", "router")]
        if not self._config.has_own_tls:
            own += self._tls("tls", "router")
        if self._config.makes_tokens:
            own += ["--tokens_file", str(self._secrets.tokens_file)]
        return self._service("router", name, address or self._listen(index), exchange_url, own)

    def _listen(self, index: int) -> str:
        first = Address.parse(self._config.listen)
        return str(replace(first, port=first.port + index if first.port else 0))

    def worker(self, role: str, index: int, exchange_url: str) -> list[str]:
        """The worker number `index` of its role."""
        name = worker_name(role, index)
        devices = self._config.device.split(",")
        own = [
            *("--worker_id", name),
            *("--device", devices[index % len(devices)]),
            *("--threads", str(self._threads(role))),
            *("--token_file", str(self._secrets.worker_token(role))),
            *("--exchange.manage_streams", "false"),
            *self._tls("tls", role),
        ]
        return self._service(role, name, str(Address(self._config.loopback, 0)), exchange_url, own)

    def _service(self, role: str, name: str, listen: str, exchange_url: str, own: Sequence[str]) -> list[str]:
        return [
            # -P: a folder `services` where the user happens to be is not ours.
            *(sys.executable, "-P", "-m", f"services.{role}"),
            *own,
            *("--listen", listen),
            *("--address_file", str(self.address_file(name))),
            *("--catalog", str(self._config.catalog.resolve())),
            *("--log_level", self._config.log_level),
            *("--drain_seconds", str(self._config.drain_s)),
            *("--exchange.url", exchange_url),
            *("--exchange.client_name", name),
            *("--exchange.user", role),
            *("--exchange.password_file", str(self._secrets.password(role))),
            *self._tls("exchange.tls", role),
            *self._config.flags.get(role, ()),
        ]

    def _tls(self, setting: str, part: str) -> list[str]:
        """The flags that give a setting the part's certificate; none without TLS."""
        certificates = self._config.certificates
        if certificates is None:
            return []
        files = certificates.of(part)
        named = {"certificate": files.certificate, "key": files.key, "ca": files.ca}
        return [flag for name, path in named.items() for flag in (f"--{setting}.{name}", str(path))]

    def _threads(self, role: str) -> int:
        config, cores = self._config, usable_cores()
        # Never more than there are free cores: docs/decisions/0006-threads.md.
        if role == "denoiser":
            return config.threads or max(1, (cores - 1) // config.denoisers)
        return config.stage_threads or max(1, min(2, cores // 4))


def router_name(index: int) -> str:
    """ "router", "router-1", …"""
    return f"router-{index}" if index else "router"


def worker_name(role: str, index: int) -> str:
    """ "denoiser-0", …"""
    return f"{role}-{index}"


def usable_cores() -> int:
    """CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_catalog() -> Path | None:
    """`models/models.toml` of the repository, or the one inside an installed package; None if there is neither."""
    package = Path(__file__).resolve().parents[1]
    for candidate in (package.parent / "models" / "models.toml", package / "models" / "models.toml"):
        if candidate.is_file():
            return candidate
    return None
