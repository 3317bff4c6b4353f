"""Kinds of values on the command line; each refuses, with words, what its field cannot hold."""

import argparse
import re

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
    """Text; a terminal may hand over bytes that are none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError("is not valid UTF-8") from error
    return text


def _whole(text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
    return int(text)
