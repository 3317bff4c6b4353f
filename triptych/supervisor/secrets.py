"""The secrets of a suite: made once, kept in a folder a role, so that each service can be given its own and no more.

    python -m triptych.supervisor.secrets --help     makes what is missing, for containers that start together

| file | what it is |
|---|---|
| `nats/nats.conf` | the NATS server's configuration, with an account and a password for each role |
| `ROLE/nats.password` | the role's password there |
| `ROLE/worker.token` | what the router sends with each call to a worker |
| `router/tokens.toml` | who may call the router: `triptych token new --file` adds to it |
| `router/admin.token` | a token for the one who runs the suite |
"""

import argparse
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

from triptych.exchange.accounts import ROLES, server_config
from triptych.exchange.server import find_config
from triptych.streams import fit_streams
from triptych.tls import TlsFiles
from triptych.tokens import new_token, token_entry

ADMIN_TENANT = "operator"


class Secrets:
    """The folder and its files. Nobody but their owner can read them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def nats_config(self) -> Path:
        return self._folder / "nats" / "nats.conf"

    @property
    def tokens_file(self) -> Path:
        return self._folder / "router" / "tokens.toml"

    @property
    def admin_token(self) -> Path:
        return self._folder / "router" / "admin.token"

    def password(self, role: str) -> Path:
        return self._folder / role / "nats.password"

    def worker_token(self, role: str) -> Path:
        return self._folder / role / "worker.token"

    def make(self, base: Path | None = None, tls: TlsFiles | None = None) -> None:
        """Make what is missing. What is there stays, but for `nats.conf`, which follows the version and the base.

        The base is the repository's configuration of NATS by default. With `tls` NATS shows its clients a certificate,
        and asks them for theirs. Raises `OSError`.
        """
        for role in ("nats", *ROLES):
            (self._folder / role).mkdir(mode=0o700, parents=True, exist_ok=True)
        passwords = {role: _once(self.password(role), secrets.token_hex) for role in ROLES}
        shared = _once(self.worker_token("router"), new_token)
        for role in ROLES:
            _once(self.worker_token(role), lambda: shared)
        admin = _once(self.admin_token, new_token)
        _once(self.tokens_file, lambda: token_entry(admin, ADMIN_TENANT, ["admin"], "made at the first start"))
        _write(self.nats_config, server_config((base or find_config()).read_text(encoding="utf-8"), passwords, tls))

    def give_to(self, user: int) -> None:
        """Make a user the owner of every file; only root can. Raises `OSError`."""
        for path in (self._folder, *self._folder.rglob("*")):
            os.chown(path, user, user)


def _once(path: Path, make: Callable[[], str]) -> str:
    """What the file holds; if there is none, it is made."""
    if not path.exists():
        _write(path, make() + "\n")
    return path.read_text(encoding="utf-8").strip()


def _write(path: Path, text: str) -> None:
    """Write the file in one step, for its owner's eyes."""
    draft = path.with_suffix(".draft")
    with os.fdopen(
        os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(text)
    draft.replace(path)


def main() -> None:
    """The whole program."""
    fit_streams()
    parser = argparse.ArgumentParser(prog="triptych secrets", description="Make the secrets of a suite.")
    parser.add_argument("folder", type=Path, help="where; a folder a role comes of it")
    parser.add_argument("--nats-base", type=Path, metavar="FILE", help="configuration of NATS to add users to")
    parser.add_argument("--owner", type=int, metavar="UID", help="user that the services run as")
    args = parser.parse_args()
    made = Secrets(args.folder)
    try:
        made.make(args.nats_base)
        if args.owner is not None:
            made.give_to(args.owner)
    except OSError as error:
        sys.exit(f"triptych secrets: {error}")
    print(f"the secrets are in {args.folder}; a token for clients is in {made.admin_token}")


if __name__ == "__main__":
    main()
