"""Job ids: time-ordered, lower case, safe in subjects and keys."""

import re
import secrets

from triptych.errors import Violation, invalid

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32
_JOB_ID = re.compile(r"[0-9a-hjkmnp-tv-z]{26}")
_REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_RANDOM_BITS = 80


def new_job_id(now_s: float) -> str:
    """26 characters that sort by time: 48 bits of Unix milliseconds and 80 random ones, as a ULID has them."""
    number = (int(now_s * 1000) << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))


def check_job_id(job_id: str) -> str:
    """The id as it stands. Raises INVALID_FIELD for anything that never was one."""
    if not _JOB_ID.fullmatch(job_id):
        raise invalid(Violation("job_id", "is not a job id: 26 characters of [0-9a-z] are"))
    return job_id


def check_request_id(request_id: str) -> str:
    """The id as it stands, which may be empty. Raises INVALID_FIELD."""
    if request_id and not _REQUEST_ID.fullmatch(request_id):
        raise invalid(Violation("request_id", "1 to 64 characters of [A-Za-z0-9_-] are allowed"))
    return request_id
