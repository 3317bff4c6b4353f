"""Certificates of an authority of the tests' own."""

import datetime
import ipaddress
import shutil
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from triptych.tls import TlsFiles

# For what `triptych up --tls` makes by itself.
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="the program openssl is not on this machine")


class Authority:
    """Signs certificates and writes them into its folder."""

    def __init__(self, folder: Path, name: str = "the tests") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._name = _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(_pem(self._sign(self._name, self._key, [], authority=True)))

    def issue(self, name: str, *, into: Path | None = None) -> TlsFiles:
        """A certificate for the DNS name and for this machine; with `into` it takes the place of an earlier one."""
        folder = into or self._folder
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(name), x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        files = TlsFiles(folder / f"{name}.pem", folder / f"{name}.key", folder / "ca.pem")
        assert files.certificate is not None
        assert files.key is not None
        assert files.ca is not None
        files.certificate.write_bytes(_pem(self._sign(_name(name), key, names)))
        private = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        files.key.write_bytes(key.private_bytes(*private))
        files.ca.write_bytes(self.ca.read_bytes())
        return files

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        names: list[x509.GeneralName],
        authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
