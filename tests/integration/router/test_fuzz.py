"""A short run of `bench.fuzz`: `python -m bench.fuzz --calls 50000` is the long one."""

from pathlib import Path

from bench.fuzz import fuzz


def test_whatever_is_sent_is_answered_in_the_catalogs_words(tmp_path: Path) -> None:
    found = fuzz(500, tmp_path)
    assert found.calls >= 500
    assert found.bad == []
    assert {"OK", "OPEN", "INVALID_ARGUMENT", "NOT_FOUND"} <= found.codes.keys()
