"""Where a suite that runs on this machine can be found: its state folder, and the lock that says it is alive."""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a Unix: no suite runs here, but the client does
    fcntl = None  # type: ignore[assignment]

DEFAULT_ADDRESS = "127.0.0.1:7460"
STATE_FILE = "suite.json"
LOCK_FILE = "suite.lock"


@dataclass(frozen=True, slots=True)
class LocalSuite:
    """A running suite: its supervisor's process id, its router's `host:port`, NATS, and its processes by name.

    `token_file`, and `ca`, `certificate` and `key`, are what its owner's clients need, where it asks for tokens or
    certificates; "" where it does not.
    """

    pid: int
    address: str
    exchange_url: str
    processes: dict[str, int]
    token_file: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def write(self, state_dir: Path) -> None:
        """Replace the state file in one step."""
        path = state_dir / STATE_FILE
        draft = path.with_suffix(".tmp")
        draft.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        draft.replace(path)

    @classmethod
    def read(cls, state_dir: Path) -> "LocalSuite | None":
        """The suite that runs from this folder; None if none does. A file that a killed one left is not believed."""
        if not is_locked(state_dir):
            return None
        try:
            return cls(**json.loads((state_dir / STATE_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None


def default_state_dir() -> Path:
    """`TRIPTYCH_STATE`, or `.triptych` in the current folder."""
    return Path(os.environ.get("TRIPTYCH_STATE") or ".triptych")


def find_router() -> str:
    """`host:port` of the router to talk to: `TRIPTYCH_ROUTER`, else the local suite's, else the default address."""
    named = os.environ.get("TRIPTYCH_ROUTER")
    if named:
        return named
    suite = LocalSuite.read(default_state_dir())
    return suite.address if suite is not None else DEFAULT_ADDRESS


def is_locked(state_dir: Path) -> bool:
    """Whether a supervisor lives that owns this folder. The lock goes with its process, however that ends."""
    try:
        descriptor = os.open(state_dir / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    with _closing(descriptor):
        return not try_lock(descriptor, shared=True)


def lock_owner(state_dir: Path) -> int | None:
    """Process id of the supervisor that owns this folder, be it starting, running or stopping; None if none does."""
    if not is_locked(state_dir):
        return None
    try:
        return int((state_dir / LOCK_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock on an open file if it is free. It is held until the descriptor is closed."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)
