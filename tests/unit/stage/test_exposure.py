"""A worker that others can reach is the router's alone."""

from pathlib import Path

import pytest

from services.stage.config import WorkerConfig
from triptych.tls import TlsFiles


def test_a_worker_is_protected_or_told_not_to_be() -> None:
    with pytest.raises(ValueError, match=r"0\.0\.0\.0:1 .*token_file"):
        WorkerConfig(listen="0.0.0.0:1")
    WorkerConfig(listen="0.0.0.0:1", token_file=Path("t"))
    WorkerConfig(listen="0.0.0.0:1", tls=TlsFiles(Path("c"), Path("k"), Path("a")))
    WorkerConfig(listen="0.0.0.0:1", insecure=True)
