"""What a worker is called that nobody has named."""

import socket

import pytest

from services.stage.worker import default_worker_id
from triptych.heartbeats import is_worker_id
from triptych.v1.job_pb2 import STAGE_DENOISE


@pytest.mark.parametrize(
    ("host", "start"),
    [
        ("gpu-1", "denoise-gpu-1-"),
        ("host.in-a-domain-with-a-name-of-its-own.example.org", "denoise-host-in-a-domain-with-a-name-of-its-own-"),
        ("größer", "denoise-gr--er-"),
        ("", "denoise--"),
    ],
)
def test_an_id_is_unique_readable_and_fit_for_a_subject(monkeypatch: pytest.MonkeyPatch, host: str, start: str) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    ids = {default_worker_id(STAGE_DENOISE) for _ in range(100)}
    assert len(ids) == 100
    assert all(is_worker_id(each) and each.startswith(start) for each in ids)
