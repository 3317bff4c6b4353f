"""A disk of a few MiB of a test's own, to be filled and freed."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_PIECE = bytes(4096)


class SmallDisk:
    """Where it is, and one file on it that takes whatever is left."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        """Leave no page."""
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(_PIECE)

    def free(self) -> None:
        """Give all of it back."""
        self._filler.unlink()


@contextmanager
def small_disk(path: Path, mib: int) -> Iterator[SmallDisk]:
    """Mount one in a new folder; skips the test where that is not permitted."""
    path.mkdir()
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(path)], capture_output=True, text=True
        )
    except FileNotFoundError:
        pytest.skip("there is no mount command to make a small disk with")
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted: {done.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", str(path)], check=True)
