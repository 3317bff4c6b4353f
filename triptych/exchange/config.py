"""Where NATS is, how much the stores may hold, and how long anything may take."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from triptych.tls import TlsFiles

MIB = 1 << 20
GIB = 1 << 30
HOUR_S = 3600.0

# The server drops a connection with more than 64 MB queued for it (its `max_pending`).
MAX_WINDOW_BYTES = 48 * MIB
# The repository's server configuration takes messages of 8 MiB; leave room for headers.
MAX_CHUNK_BYTES = 7 * MIB

# The part of a store that its messages' payloads may take; what stands around each takes the rest.
_FITS = 0.98


@dataclass(frozen=True)
class ExchangeConfig:
    """Settings of one process's exchange. Every process of a suite should use the same limits and TTLs.

    Raises ValueError, naming the field, for a value that cannot work.
    """

    # Several servers of a cluster are separated by commas.
    url: str = "nats://127.0.0.1:4222"
    # A NATS .creds file; None for a server without accounts, or with user and password in the URL.
    credentials_file: Path | None = None
    # A user of the server and the file that has its password; "" for a server without users.
    user: str = ""
    password_file: Path | None = None
    # Whom to trust, and what to show, where the server asks for TLS.
    tls: TlsFiles = field(default_factory=TlsFiles)
    # Whether this process makes the streams, or waits until another has. In a suite with users the router alone may.
    manage_streams: bool = True
    # Shown in the server's list of connections.
    client_name: str = "triptych"

    storage: Literal["file", "memory"] = "file"
    replicas: int = 1
    conditioning_max_bytes: int = 2 * GIB
    latents_max_bytes: int = 8 * GIB
    outputs_max_bytes: int = 4 * GIB
    events_max_bytes: int = 512 * MIB
    jobs_max_bytes: int = 512 * MIB
    conditioning_index_max_bytes: int = 64 * MIB
    leader_max_bytes: int = 1 * MIB
    preview_maps_max_bytes: int = 4 * MIB

    # How long bundles are kept after the last job that names them is over; of no job: after they were made.
    conditioning_ttl_s: float = 6 * HOUR_S
    latents_ttl_s: float = 1 * HOUR_S
    outputs_ttl_s: float = 24 * HOUR_S
    # Shorter than its bundles' by the time a job may take between finding an entry and reading the bundle.
    conditioning_index_ttl_s: float = 5 * HOUR_S
    events_ttl_s: float = 24 * HOUR_S
    jobs_ttl_s: float = 7 * 24 * HOUR_S
    # How long after its last word a router is taken to be gone, and another leads.
    leader_ttl_s: float = 3.0
    preview_maps_ttl_s: float = 30 * 24 * HOUR_S

    chunk_bytes: int = 1 * MIB
    # Unacknowledged bytes on their way, each way, all puts (gets) of the process together.
    window_bytes: int = 8 * MIB
    # A payload up to this size travels inside its manifest.
    inline_bytes: int = 1 * MIB
    max_bundle_bytes: int = 8 * GIB
    # What may wait in the client while disconnected; more is refused.
    pending_bytes: int = 16 * MIB

    # To be connected, at start.
    connect_timeout_s: float = 10.0
    # For one message and its answer, waiting for a lost connection included.
    answer_timeout_s: float = 10.0
    reconnect_pause_s: float = 0.2
    ping_interval_s: float = 5.0

    def __post_init__(self) -> None:
        for server in self.servers:
            _check_server(self.url, server)
        if self.storage not in ("file", "memory"):
            raise ValueError(f"storage: {self.storage!r} is neither 'file' nor 'memory'")
        if bool(self.user) != (self.password_file is not None):
            raise ValueError("user and password_file belong together; name both")
        for setting in fields(self):
            value = getattr(self, setting.name)
            if isinstance(value, int | float) and not isinstance(value, bool) and not value > 0:
                raise ValueError(f"{setting.name}: must be above 0, is {value}")
        self._check_sizes()
        if self.conditioning_index_ttl_s >= self.conditioning_ttl_s:
            raise ValueError("conditioning_index_ttl_s: an entry must expire before its bundle (conditioning_ttl_s)")

    @property
    def servers(self) -> list[str]:
        """The servers' URLs."""
        return [server.strip() for server in self.url.split(",")]

    @property
    def shown_url(self) -> str:
        """The URL for people to read: without a user and a password."""
        parts = [_parts(server) for server in self.servers]
        return ",".join(f"{part.scheme}://{part.netloc.rpartition('@')[2]}" for part in parts)

    def room_bytes(self, store: str) -> int:
        """What an empty store holds: a bundle that is larger would wait for room for ever."""
        of_store: int = getattr(self, f"{store}_max_bytes")
        return int(_FITS * of_store)

    def _check_sizes(self) -> None:
        if self.chunk_bytes > MAX_CHUNK_BYTES:
            raise ValueError(f"chunk_bytes: at most {MAX_CHUNK_BYTES}, is {self.chunk_bytes}")
        if self.inline_bytes > self.chunk_bytes:
            raise ValueError("inline_bytes: must not exceed chunk_bytes")
        if not self.chunk_bytes <= self.window_bytes <= MAX_WINDOW_BYTES:
            raise ValueError(f"window_bytes: between chunk_bytes and {MAX_WINDOW_BYTES}, is {self.window_bytes}")
        if self.pending_bytes < self.window_bytes:
            raise ValueError("pending_bytes: must hold a whole window_bytes")


def _parts(server: str) -> SplitResult:
    return urlsplit(server if "://" in server else f"nats://{server}")


def _check_server(url: str, server: str) -> None:
    """Raises ValueError for what names no server."""
    if not server:
        raise ValueError(f"url: {url!r} names no server, or an empty one")
    try:
        parts = _parts(server)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        named = False
    if not named:
        shown = server.rpartition("@")[2]
        raise ValueError(
            f"url: {shown!r} names no host and port; an IPv6 address stands in brackets: nats://[::1]:4222"
        )
