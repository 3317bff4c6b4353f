"""The secrets of a suite."""

from pathlib import Path

from triptych.exchange.accounts import ROLES, permissions
from triptych.supervisor.secrets import Secrets


def test_secrets_are_made_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    secrets = Secrets(tmp_path / "secrets")
    secrets.make()
    before = {path: path.read_text() for path in (tmp_path / "secrets").rglob("*") if path.is_file()}
    secrets.make()
    assert before == {path: path.read_text() for path in (tmp_path / "secrets").rglob("*") if path.is_file()}
    assert all(path.stat().st_mode & 0o77 == 0 for path in (tmp_path / "secrets").rglob("*"))
    passwords = {secrets.password(role).read_text() for role in ROLES}
    assert len(passwords) == len(ROLES)
    assert len({secrets.worker_token(role).read_text() for role in ROLES}) == 1
    assert all(permissions(role).publish for role in ROLES)
