"""The folder of certificates: made once, completed where the authority's key is, never half."""

from pathlib import Path

import pytest
from cryptography import x509

from tests.certificates import needs_openssl
from triptych.supervisor.certificates import PARTS, Certificates, CertificatesError
from triptych.tls import TlsError


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@needs_openssl
def test_what_is_missing_is_made_and_what_is_there_stays(tmp_path: Path) -> None:
    certificates, folder = Certificates(tmp_path / "tls"), tmp_path / "tls"
    certificates.make(["suite.example", "10.0.0.7"])
    made = contents(folder)
    assert set(made) == {"ca.pem", "ca.key", *(f"{part}.{kind}" for part in PARTS for kind in ("pem", "key"))}
    assert all(path.stat().st_mode & 0o77 == 0 for path in folder.glob("*.key"))
    certificates.make()
    assert contents(folder) == made
    (folder / "decoder.pem").unlink()
    certificates.make()
    changed = {name for name, data in contents(folder).items() if data != made[name]}
    assert changed == {"decoder.pem", "decoder.key"}


@needs_openssl
def test_each_part_has_its_own_name_and_no_place_that_it_has_not(tmp_path: Path) -> None:
    Certificates(tmp_path).make(["suite.example", "10.0.0.7"])
    for part in PARTS:
        certificate = x509.load_pem_x509_certificate((tmp_path / f"{part}.pem").read_bytes())
        named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = set(named.get_values_for_type(x509.DNSName))
        addresses = {str(address) for address in named.get_values_for_type(x509.IPAddress)}
        if part == "router":
            assert names > {"router", "localhost", "suite.example"}
            assert addresses == {"127.0.0.1", "::1", "10.0.0.7"}
        else:
            here = part == "nats"
            assert names == ({part, "localhost"} if here else {part})
            assert addresses == ({"127.0.0.1", "::1"} if here else set())


@needs_openssl
def test_a_folder_of_ones_own_must_be_whole(tmp_path: Path) -> None:
    Certificates(tmp_path).make()
    (tmp_path / "ca.key").unlink()
    Certificates(tmp_path).make()
    (tmp_path / "client.key").unlink()
    with pytest.raises(CertificatesError, match=r"has no client\.pem .*, and no ca.key"):
        Certificates(tmp_path).make()


@needs_openssl
def test_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    Certificates(tmp_path).make()
    (tmp_path / "nats.key").write_bytes((tmp_path / "router.key").read_bytes())
    with pytest.raises(TlsError, match=r"nats\.key"):
        Certificates(tmp_path).make()


def test_without_openssl_it_is_said_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CertificatesError, match=r"openssl is not installed.* put your own into"):
        Certificates(tmp_path / "tls").make()
    assert contents(tmp_path / "tls") == {}
