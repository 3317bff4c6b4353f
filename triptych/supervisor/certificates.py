"""The certificates of a suite: one folder, with an authority and a pair of files for each part.

| file | what it is |
|---|---|
| `ca.pem` | the authority, whom every part trusts |
| `ca.key` | its key, where the suite has made it |
| `NAME.pem`, `NAME.key` | what each of `nats`, `router`, `encoder`, `denoiser`, `decoder` shows, and each `client` |

Each has the part's name for a DNS name. NATS and the router are looked for on this machine: theirs have `localhost` and
127.0.0.1 as well.
"""

import os
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from triptych.exchange.accounts import ROLES
from triptych.tls import TlsFiles

CLIENT = "client"
NATS = "nats"
PARTS = (NATS, *ROLES, CLIENT)
_FOUND_HERE = (NATS, "router")
_DAYS = "3650"
_OPENSSL_LIMIT_S = 30.0

_REQUEST = """
[req]
distinguished_name = subject
prompt = no
[subject]
CN = {name}
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
[part]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = {names}
"""


class CertificatesError(ValueError):
    """Files are missing and cannot be made; the message says which, and why."""


class Certificates:
    """The folder. `make` sees that it is whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def of(self, part: str) -> TlsFiles:
        """What a part shows, and whom it trusts."""
        return TlsFiles(self._folder / f"{part}.pem", self._folder / f"{part}.key", self._folder / "ca.pem")

    def make(self, hosts: Sequence[str] = ()) -> None:
        """Make what is missing, with the program `openssl`; what is there stays. `hosts`: further names of the router.

        Raises `CertificatesError`, also where an authority is there and its key is not, `TlsError` for files that
        cannot be used, and `OSError`.
        """
        missing = [part for part in PARTS if not self._has(part)]
        authority, key = self._folder / "ca.pem", self._folder / "ca.key"
        if missing and authority.exists() and not key.exists():
            names = ", ".join(f"{part}.pem" for part in missing)
            raise CertificatesError(f"{self._folder} has no {names} (with its .key), and no ca.key to make it with")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not authority.exists():
            self._make_authority()
        for part in missing:
            self._issue(part, [part, *_names(part, hosts)])
        for part in PARTS:
            self.of(part).check()

    def _has(self, part: str) -> bool:
        files = self.of(part)
        return all(path is not None and path.exists() for path in (files.certificate, files.key))

    def _make_authority(self) -> None:
        with _Draft(self._folder, f"Triptych suite {secrets.token_hex(4)}", []) as draft:
            draft.openssl(
                *("req", "-x509", "-new", "-sha256", "-days", _DAYS, "-key", draft.key, "-config", draft.request),
                *("-extensions", "authority", "-out", draft.certificate),
            )
            draft.move_to("ca")

    def _issue(self, part: str, names: Sequence[str]) -> None:
        with _Draft(self._folder, part, names) as draft:
            signing = f"{draft.certificate}.csr"
            draft.openssl("req", "-new", "-sha256", "-key", draft.key, "-config", draft.request, "-out", signing)
            draft.openssl(
                *("x509", "-req", "-sha256", "-days", _DAYS, "-in", signing, "-out", draft.certificate),
                *("-CA", str(self._folder / "ca.pem"), "-CAkey", str(self._folder / "ca.key")),
                *("-set_serial", f"0x{secrets.randbits(126) | 1:x}"),
                *("-extfile", draft.request, "-extensions", "part"),
            )
            draft.move_to(part)


class _Draft:
    """A pair in the making, in a folder of its own that goes with the block."""

    def __init__(self, folder: Path, name: str, names: Sequence[str]) -> None:
        self._folder = folder
        self._drafts = tempfile.TemporaryDirectory(dir=folder, prefix=".draft-")
        self._text = _REQUEST.format(name=name, names=", ".join(map(_alternative_name, names)) or "DNS:none")
        self.request, self.key, self.certificate = (f"{self._drafts.name}/{each}" for each in ("conf", "key", "pem"))

    def __enter__(self) -> "_Draft":
        Path(self.request).write_text(self._text, encoding="utf-8")
        os.close(os.open(self.key, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self.openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.key)
        return self

    def __exit__(self, *_: object) -> None:
        self._drafts.cleanup()

    def openssl(self, *arguments: str) -> None:
        """Run the program. Raises `CertificatesError`."""
        try:
            ended = subprocess.run(
                ["openssl", *arguments],
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                timeout=_OPENSSL_LIMIT_S,
                check=False,
            )
        except FileNotFoundError:
            names = ", ".join(PARTS)
            raise CertificatesError(
                f"the program openssl is not installed, which makes certificates; or put your own into {self._folder}: "
                f"ca.pem, and NAME.pem with NAME.key for {names}"
            ) from None
        except subprocess.TimeoutExpired as error:
            raise CertificatesError(f"openssl {arguments[0]} did not end within {error.timeout:g} s") from error
        if ended.returncode:
            raise CertificatesError(f"openssl {arguments[0]}: {ended.stderr.strip()[-500:]}")

    def move_to(self, name: str) -> None:
        """Put the pair into its place, the key first."""
        Path(self.key).replace(self._folder / f"{name}.key")
        Path(self.certificate).replace(self._folder / f"{name}.pem")


def _names(part: str, hosts: Sequence[str]) -> list[str]:
    if part not in _FOUND_HERE:
        return []
    here = ["localhost", "127.0.0.1", "::1"]
    return [*here, socket.gethostname(), *hosts] if part == "router" else here


def _alternative_name(name: str) -> str:
    kind = "IP" if ":" in name or name.replace(".", "").isdecimal() else "DNS"
    return f"{kind}:{name}"
