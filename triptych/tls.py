"""TLS from PEM files, for gRPC and for NATS. Files that are renewed in place hold for every connection made after that.

Between services the certificates say what a service is, not where: DNS names "router", "encoder", "denoiser",
"decoder". Workers come and go on addresses that no certificate could name.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc
import structlog

log = structlog.get_logger()

Stamp = tuple[tuple[int, int], ...]


class TlsError(ValueError):
    """Files that cannot be used; the message names them."""


@dataclass(frozen=True)
class TlsFiles:
    """What one end of a connection shows, `certificate` (with its chain) and `key`, and whom it trusts, `ca`.

    A server that has a `ca` asks every client for a certificate of it. Raises ValueError for half a pair.
    """

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("tls: certificate and key belong together; name both")

    @property
    def wanted(self) -> bool:
        """Whether there is anything to do TLS with."""
        return self.certificate is not None or self.ca is not None

    @property
    def stamp(self) -> Stamp:
        """Changes when one of the files does. Raises `TlsError`."""
        return tuple(_stamp(path) for path in (self.certificate, self.key, self.ca) if path is not None)

    def check(self) -> None:
        """See that the files can be used together. Raises `TlsError`."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            named = ", ".join(str(path) for path in (self.certificate, self.key, self.ca) if path is not None)
            raise TlsError(f"tls: {named}: {error}") from error


class ServerCertificates:
    """A server's certificates, looked at again at every new connection."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._stamp: Stamp = ()

    def credentials(self) -> grpc.ServerCredentials:
        """For a gRPC server. Raises `TlsError`."""
        if self._files.certificate is None:
            raise TlsError("tls: a server needs a certificate and a key")
        mutual = self._files.ca is not None
        renewed = cast(Any, self._renewed)  # None is for "as before"; the stubs do not know
        return grpc.dynamic_ssl_server_credentials(self._read(), renewed, require_client_authentication=mutual)

    def _read(self) -> grpc.ServerCertificateConfiguration:
        self._files.check()
        self._stamp = self._files.stamp
        pair = (_bytes(self._files.key) or b"", _bytes(self._files.certificate) or b"")
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=_bytes(self._files.ca))

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """The new certificates; None while they are as before, or half replaced. Called on a thread of gRPC's."""
        try:
            if self._files.stamp == self._stamp:
                return None
            renewed = self._read()
        except TlsError as error:
            log.warning("certificates_not_renewed", error=str(error))
            return None
        log.info("certificates_renewed", certificate=str(self._files.certificate))
        return renewed


def channel_credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    """For a gRPC channel; without a `ca` it trusts the public ones. Raises `TlsError`."""
    files.check()
    return grpc.ssl_channel_credentials(_bytes(files.ca), _bytes(files.key), _bytes(files.certificate))


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """For a client of NATS. Raises `TlsError`."""
    files.check()
    context = ssl.create_default_context(cafile=files.ca)
    if files.certificate is not None:
        context.load_cert_chain(files.certificate, files.key)
    return context


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise TlsError(f"tls: {path}: {error.strerror}") from error
    return found.st_mtime_ns, found.st_ino


def _bytes(path: Path | None) -> bytes | None:
    return path.read_bytes() if path is not None else None
