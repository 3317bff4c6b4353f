"""A file that tells whoever started a service where it listens."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def address_file(path: Path | None, address: str) -> Iterator[None]:
    """Write it in one step; it goes when the service does. Nothing is done without a path. Raises `OSError`."""
    if path is None:
        yield
        return
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    draft.write_text(address, encoding="utf-8")
    draft.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
