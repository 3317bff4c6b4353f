"""The settings that every stage worker has."""

from dataclasses import dataclass, field
from pathlib import Path

from triptych.exchange import ExchangeConfig
from triptych.heartbeats import is_worker_id
from triptych.rpc.exposure import check_advertised, refuse_unprotected
from triptych.tls import TlsFiles


@dataclass(frozen=True)
class WorkerConfig:
    """Where a worker listens, which models it serves, on which device, and how it ends."""

    # host:port of the gRPC server; port 0 takes a free one.
    listen: str = "127.0.0.1:0"
    # host:port at which the router reaches it; by default the listening host, or this machine's address on the way to
    # NATS where it listens everywhere.
    advertise: str | None = None
    # File to write the listening address into once it listens.
    address_file: Path | None = None
    # What the router is shown; with a `ca` only a certificate of it for the DNS name "router" may call.
    tls: TlsFiles = field(default_factory=TlsFiles)
    # File with the token that the router must send. Without it, and without a `ca`, everyone may call.
    token_file: Path | None = None
    # Listen beyond this machine although everyone may call.
    insecure: bool = False
    # Name of this worker, unique in the suite: of two with one name the later is refused. By default it is made of
    # stage, host and chance, anew at each start.
    worker_id: str | None = None
    catalog: Path = Path("models/models.toml")
    # Names of the catalog's models to serve, separated by commas; empty: all.
    models: str = ""
    # Seconds between two looks at the folder of a model that cannot be served: when it has changed, the model is tried
    # again. A hub id is tried again after this time, then after twice as long each, up to 128 times this.
    retry_seconds: float = 5.0
    # "cpu", "cuda", "cuda:1", "mps"; "auto" takes the first accelerator there is.
    device: str = "auto"
    # CPU threads for torch; 0: all cores but one. More threads than free cores is far worse than one too few: every
    # parallel region then waits for a thread that is not running.
    threads: int = 0
    # Calls taken at once; the best-ranked runs.
    max_active_jobs: int = 4
    # Work that may lie paused at once under better-ranked work, and the bytes that it may hold together: beyond them a
    # job gives way only between two steps, and one with no steps not at all.
    max_paused: int = 4
    max_paused_bytes: int = 8 << 30
    # Blocks that may be queued on an accelerator ahead of what it computes: a switch comes so many blocks late.
    run_ahead_blocks: int = 2
    # Free words by which pools choose their workers.
    labels: dict[str, str] = field(default_factory=dict)
    heartbeat_seconds: float = 1.0
    # Device work that comes to no block, tile or step for so long hangs: the worker ends, and its jobs go elsewhere.
    hang_seconds: float = 900.0
    # How long running calls may go on after SIGTERM.
    drain_seconds: float = 30.0
    log_level: str = "info"
    exchange: ExchangeConfig = field(default_factory=ExchangeConfig)

    def __post_init__(self) -> None:
        check_advertised(self.advertise)
        refuse_unprotected(
            self.listen,
            protected=self.token_file is not None or self.tls.ca is not None,
            insecure=self.insecure,
            remedy="Name a token_file that the router has too, or tls files with a ca",
        )
        if self.worker_id is not None and not is_worker_id(self.worker_id):
            raise ValueError("worker_id: must be 1 to 64 of A-Z, a-z, 0-9, _ and -")
        if self.max_active_jobs < 1:
            raise ValueError("max_active_jobs: must be at least 1")
        if not 0 <= self.max_paused <= 8:
            raise ValueError("max_paused: must be 0 to 8")
        if self.max_paused_bytes < 0:
            raise ValueError("max_paused_bytes: must not be negative")
        if not 1 <= self.run_ahead_blocks <= 64:
            raise ValueError("run_ahead_blocks: must be 1 to 64")
        if self.threads < 0:
            raise ValueError("threads: must not be negative")
        if not self.hang_seconds > 0:
            raise ValueError("hang_seconds: must be above 0")
        if not self.retry_seconds > 0:
            raise ValueError("retry_seconds: must be above 0")
        if not 0 < self.heartbeat_seconds <= 10:
            raise ValueError("heartbeat_seconds: must be above 0, at most 10")
