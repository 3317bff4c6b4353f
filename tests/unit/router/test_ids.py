"""Ids of jobs and requests."""

import pytest

from services.router.ids import check_job_id, check_request_id, new_job_id
from triptych.errors import TriptychError


def test_ids_sort_by_time_and_are_their_own_check() -> None:
    ids = [new_job_id(now_s) for now_s in (0.0, 1.0, 1_700_000_000.0, 1_700_000_000.002, 4e9)]
    assert ids == sorted(ids)
    assert all(check_job_id(job_id) == job_id and len(job_id) == 26 for job_id in ids)
    assert len({new_job_id(5.0) for _ in range(1000)}) == 1000


@pytest.mark.parametrize("job_id", ["", "*", ">", "a.b", "0" * 25, "0" * 27, "O" * 26, "i" * 26, "0" * 26 + "\n"])
def test_what_never_was_a_job_id(job_id: str) -> None:
    with pytest.raises(TriptychError) as caught:
        check_job_id(job_id)
    assert caught.value.violations[0].field == "job_id"


def test_request_ids() -> None:
    for good in ("", "a", "A-Z_09", "x" * 64):
        assert check_request_id(good) == good
    for bad in ("x" * 65, "a b", "a.b", "a\n", "ä"):
        with pytest.raises(TriptychError):
            check_request_id(bad)
