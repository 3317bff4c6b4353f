"""A short run of `bench.fuzz`: `python -m bench.fuzz --calls 50000` is the long one."""

from pathlib import Path

from bench.fuzz import METHODS, fuzz

# Never ends by itself.
SERVED = [method for method in METHODS if method.name != "WatchFleet"]


def test_whatever_is_sent_is_answered_in_the_catalogs_words(tmp_path: Path) -> None:
    found = fuzz(500, tmp_path, methods=SERVED)
    assert found.calls >= 500
    assert found.bad == []
    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND"} <= found.codes.keys()
