"""The router's settings."""

from dataclasses import dataclass, field
from pathlib import Path

from services.router.core.config import SchedulerConfig
from triptych.exchange import ExchangeConfig
from triptych.rpc.exposure import check_advertised, refuse_unprotected
from triptych.rpc.guard import read_token
from triptych.tls import TlsFiles


@dataclass(frozen=True)
class RouterConfig:
    """Where the router listens, what it serves, and its bounds. `[scheduler]` holds admission, pools and retries."""

    # host:port of the gRPC server; port 0 takes a free one.
    listen: str = "127.0.0.1:7460"
    # host:port at which others reach it; by default the listening address.
    advertise: str | None = None
    # File to write the listening address into once it listens; removed at the end.
    address_file: Path | None = None
    catalog: Path = Path("models/models.toml")
    # Who may call: a TOML file of `[[tokens]]`, as `triptych token new` makes them, and each tenant's quota. It is read
    # again when it changes. Without it everyone may do everything.
    tokens_file: Path | None = None
    # What clients are shown; with a `ca` they must show a certificate of it.
    tls: TlsFiles = field(default_factory=TlsFiles)
    # What the other routers of the suite are shown, and whom of them to trust: by default as clients are. Their
    # certificates must name the host that they `advertise`.
    peer_tls: TlsFiles = field(default_factory=TlsFiles)
    # What workers are shown, and whom of them to trust; a file with the token that they all ask for.
    worker_tls: TlsFiles = field(default_factory=TlsFiles)
    worker_token_file: Path | None = None
    # Listen beyond this machine although everyone may do everything.
    insecure: bool = False
    # A worker without a heartbeat for so long is lost.
    worker_timeout_s: float = 5.0
    # Longest that one call to an encoder, or to a decoder, may take. A denoise may be paused for any time.
    encode_timeout_s: float = 300.0
    decode_timeout_s: float = 3600.0
    # How long it may take after SIGTERM until running denoises have been handed back with a checkpoint.
    drain_seconds: float = 30.0
    # So long a job of GenerateMedia calls alone, of which the last was ended by a router or lost with it, waits for its
    # client to come back, by the request id, before it is cancelled.
    disconnect_grace_s: float = 10.0
    # Streams (watches, generations, downloads) at once.
    max_streams: int = 4096
    # Outputs in memory at once, on their way to clients.
    max_downloads: int = 16
    # A client that takes nothing of its download for so long makes room for others.
    download_stall_s: float = 60.0
    # Bytes of the attachments of jobs that are not over.
    max_attachment_bytes: int = 256 * 1024 * 1024
    # Past this part of a store's bytes no new job is taken: the rest is for those that were accepted.
    store_high_water: float = 0.9
    # Ended jobs kept in memory: so many, so long. Older ones are read from the store.
    max_ended_jobs: int = 1000
    ended_jobs_s: float = 900.0
    # Jobs a page of ListJobs has if the client does not say, and at most.
    page_size: int = 50
    max_page_size: int = 1000
    log_level: str = "info"
    exchange: ExchangeConfig = field(default_factory=ExchangeConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)

    @property
    def worker_token(self) -> str | None:
        """What `worker_token_file` holds; None without one. Raises `ValueError`."""
        return read_token(self.worker_token_file) if self.worker_token_file is not None else None

    def __post_init__(self) -> None:
        positive = (
            "worker_timeout_s",
            "encode_timeout_s",
            "decode_timeout_s",
            "disconnect_grace_s",
            "max_streams",
            "max_downloads",
            "download_stall_s",
            "max_attachment_bytes",
            "max_ended_jobs",
            "ended_jobs_s",
        )
        for name in positive:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: must be above 0")
        check_advertised(self.advertise)
        refuse_unprotected(
            self.listen,
            protected=self.tokens_file is not None or self.tls.ca is not None,
            insecure=self.insecure,
            remedy="Name a tokens_file (triptych token new --help)",
        )
        if not 0 < self.store_high_water <= 1:
            raise ValueError("store_high_water: must be above 0, at most 1")
        if self.drain_seconds < 0:
            raise ValueError("drain_seconds: must not be negative")
        if not 0 < self.page_size <= self.max_page_size <= 1000:
            raise ValueError("page_size: 0 < page_size ≤ max_page_size ≤ 1000 must hold")
