"""Previews: what a job may ask for, and the NATS subjects that they travel on."""

import re

from triptych.durations import seconds_of, seconds_within
from triptych.errors import Violation
from triptych.v1.job_pb2 import PreviewPolicy

DEFAULT_SIDE = 256
MIN_SIDE, MAX_SIDE = 32, 1024
MIN_INTERVAL_S, MAX_INTERVAL_S = 0.1, 3600.0
# The decoders of a suite are one queue group: each request goes to one of them.
QUEUE_GROUP = "decoders"

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def latents_subject(fingerprint: str) -> str:
    """Where a model's decoders take latents to preview. Raises `ValueError` for what cannot be a fingerprint."""
    return f"triptych.v1.preview.latents.{_token(fingerprint)}"


def made_subject(job_id: str) -> str:
    """Where a job's previews are published. Raises `ValueError` for what cannot be a job's id."""
    return f"triptych.v1.preview.made.{_token(job_id)}"


def interval_s(policy: PreviewPolicy) -> float:
    """Seconds between two previews, if the policy is by time."""
    return seconds_of(policy.every_time)


def check_policy(policy: PreviewPolicy) -> list[Violation]:
    """What is wrong with a policy, by field."""
    found = []
    match policy.WhichOneof("interval"):
        case None:
            found.append(Violation("spec.preview", "say when: every_steps or every_time"))
        case "every_steps" if policy.every_steps < 1:
            found.append(Violation("spec.preview.every_steps", "must be 1 or more"))
        case "every_time" if seconds_within(policy.every_time, MIN_INTERVAL_S, MAX_INTERVAL_S) is None:
            allowed = f"{MIN_INTERVAL_S:g} s to {MAX_INTERVAL_S:g} s"
            found.append(Violation("spec.preview.every_time", f"must be {allowed}, its nanos 0 to 999,999,999"))
    if policy.max_side and not MIN_SIDE <= policy.max_side <= MAX_SIDE:
        allowed = f"{MIN_SIDE} to {MAX_SIDE} pixels, or 0 for {DEFAULT_SIDE}"
        found.append(Violation("spec.preview.max_side", f"must be {allowed}"))
    return found


def _token(text: str) -> str:
    if not _TOKEN.fullmatch(text):
        raise ValueError(f"{text[:64]!r} cannot be part of a subject")
    return text
