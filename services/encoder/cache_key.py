"""The hash of everything that shapes a block's result."""

import struct
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from PIL import Image

# Part of every key: change it when the meaning of a stored result changes.
_VERSION = b"triptych conditioning 2"


def cache_key(facts: Mapping[str, Any]) -> str:
    """64 hexadecimal digits from named facts: text, numbers, pictures, and lists or mappings of these.

    Equal facts give equal keys, whatever their order; values of different types never collide. Raises `TypeError` for
    a value whose content cannot be told.
    """
    digest = blake2b(_VERSION, digest_size=32)
    _feed(digest, dict(facts))
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        _tag(digest, b"m", len(value))
        for name in sorted(value):
            _feed(digest, name)
            _feed(digest, value[name])
    elif isinstance(value, list | tuple):
        _tag(digest, b"l", len(value))
        for item in value:
            _feed(digest, item)
    elif isinstance(value, Image.Image):
        _feed(digest, [value.mode, *value.size])
        _bytes(digest, b"p", value.tobytes())
    else:
        _scalar(digest, value)


def _scalar(digest: Any, value: Any) -> None:
    if value is None:
        _tag(digest, b"n", 0)
    elif isinstance(value, str):
        _bytes(digest, b"s", value.encode("utf-8", "surrogatepass"))
    elif isinstance(value, bytes):
        _bytes(digest, b"b", value)
    elif isinstance(value, bool):
        _tag(digest, b"t", int(value))
    elif isinstance(value, int):
        _bytes(digest, b"i", str(value).encode())
    elif isinstance(value, float):
        _bytes(digest, b"f", struct.pack("<d", value))
    else:
        raise TypeError(f"a {type(value).__name__} cannot be part of a cache key")


def _bytes(digest: Any, tag: bytes, data: bytes) -> None:
    _tag(digest, tag, len(data))
    digest.update(data)


def _tag(digest: Any, tag: bytes, length: int) -> None:
    digest.update(tag + length.to_bytes(8, "little"))
