"""Kinds of values on the command line; each refuses, with words, what its field cannot hold."""

import argparse
import json
import os
import re
from typing import Any

from triptych.limits import MAX_SEED

UINT32_MAX = 2**32 - 1
DURATION_MAX_S = 366 * 86400.0
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)(ms|s|m|h)")
_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def positive(text: str) -> int:
    """From 1 up."""
    return _whole(text, 1, UINT32_MAX)


def natural(text: str) -> int:
    """From 0 up."""
    return _whole(text, 0, UINT32_MAX)


def seed(text: str) -> int:
    """A seed."""
    return _whole(text, 0, MAX_SEED)


def size(text: str) -> tuple[int, int]:
    """Width and height in pixels: "96x64"."""
    width, separator, height = text.lower().partition("x")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not WIDTHxHEIGHT")
    return positive(width), positive(height)


def duration(text: str) -> float:
    """Seconds, from a number and its unit: "500ms", "30s", "2.5m", "1h"."""
    found = _DURATION.fullmatch(text)
    seconds = float(found[1]) * _UNITS_S[found[2]] if found else 0.0
    if not 0.0 < seconds <= DURATION_MAX_S:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time such as 500ms, 30s, 2m or 1h, above 0 and up to a year"
        )
    return seconds


def words(text: str) -> str:
    """Text. Bytes that the locale did not know are read as UTF-8; a terminal may hand over some that are not."""
    try:
        return text if _is_text(text) else os.fsencode(text).decode()
    except UnicodeError as error:
        raise argparse.ArgumentTypeError("is not valid UTF-8") from error


def pair(text: str) -> tuple[str, Any]:
    """A key, and its value: JSON, or else text."""
    key, separator, value = words(text).partition("=")
    if not separator or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    try:
        read = json.loads(value, parse_constant=_refuse)
    except ValueError:
        return key, value
    if not _is_text(json.dumps(read, ensure_ascii=False)):
        raise argparse.ArgumentTypeError(f"{text!r} has half of a surrogate pair")
    return key, read


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _whole(text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
    return int(text)
