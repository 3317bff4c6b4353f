"""The users of a suite's NATS server: one a role, each with the subjects that it needs and no more.

So a decoder that somebody has taken over can put outputs, and cannot put conditioning, write jobs, or read what they
ask for. Answers come to an inbox of each role's own; nobody else can listen there.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from triptych.exchange.connection import inbox_prefix
from triptych.exchange.store import STREAMS, SUBJECT_PREFIX
from triptych.exchange.streams import events_subject

ROLES = ("router", "encoder", "denoiser", "decoder")
_ANSWER_TTL = "1m"


@dataclass(frozen=True, slots=True)
class Permissions:
    """Subjects that a user may publish to and subscribe to. `answers`: it may answer each request that reached it."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: bool = False


def permissions(role: str) -> Permissions:
    """What a role may do. Raises `KeyError` for none of `ROLES`."""
    own = inbox_prefix(role) + ".>"
    return {
        # It owns the streams: only what it may hear is bounded.
        "router": Permissions(
            (">",),
            (own, "triptych.v1.heartbeat.*.*", "triptych.v1.preview.made.*", events_subject("*")),
        ),
        "encoder": Permissions(
            (*_worker("encode"), *_writer("conditioning"), *_reader("conditioning"), *_bucket("conditioning")), (own,)
        ),
        "denoiser": Permissions(
            (
                *_worker("denoise"),
                *_reader("conditioning"),
                *_writer("latents"),
                *_reader("latents"),
                "triptych.v1.preview.latents.*",
            ),
            (own,),
        ),
        "decoder": Permissions(
            (
                *_worker("decode"),
                *_reader("conditioning"),
                *_reader("latents"),
                *_writer("outputs"),
                *_bucket("preview_maps"),
                "triptych.v1.preview.made.*",
            ),
            (own, "triptych.v1.preview.latents.*"),
            answers=True,
        ),
    }[role]


def server_config(base: str, passwords: Mapping[str, str]) -> str:
    """A server's configuration: the base and a user for each role. Passwords are letters and digits."""
    users = "\n".join(_user(role, passwords[role]) for role in ROLES)
    return f"{base}\n# Made by Triptych; made anew at each start.\nauthorization {{\n  users: [\n{users}\n  ]\n}}\n"


def _user(role: str, password: str) -> str:
    allowed = permissions(role)
    answers = f', allow_responses: {{ max: 1, ttl: "{_ANSWER_TTL}" }}' if allowed.answers else ""
    return (
        f'    {{ user: "{role}", password: "{password}", permissions: {{\n'
        f"        publish: {{ allow: {_subjects(allowed.publish)} }}\n"
        f"        subscribe: {{ allow: {_subjects(allowed.subscribe)} }}{answers} }} }}"
    )


def _subjects(subjects: tuple[str, ...]) -> str:
    return "[" + ", ".join(f'"{subject}"' for subject in subjects) + "]"


def _worker(stage: str) -> tuple[str, ...]:
    """What every worker does: tell that it is there, and see which terms of routers there have been."""
    return (f"triptych.v1.heartbeat.{stage}.*", "$JS.API.STREAM.INFO.KV_leader")


def _writer(store: str) -> tuple[str, ...]:
    """Put bundles, and take back those that were not finished."""
    return (f"{SUBJECT_PREFIX}.{store}.>", f"$JS.API.STREAM.PURGE.{STREAMS[store]}")


def _reader(store: str) -> tuple[str, ...]:
    """Get bundles: from any replica, and from the leader."""
    stream = STREAMS[store]
    return (f"$JS.API.DIRECT.GET.{stream}.{SUBJECT_PREFIX}.{store}.>", f"$JS.API.STREAM.MSG.GET.{stream}")


def _bucket(bucket: str) -> tuple[str, ...]:
    """Read and write a key-value bucket."""
    stream = f"KV_{bucket}"
    return (
        f"$KV.{bucket}.>",
        f"$JS.API.STREAM.INFO.{stream}",
        f"$JS.API.DIRECT.GET.{stream}.$KV.{bucket}.>",
        f"$JS.API.STREAM.MSG.GET.{stream}",
    )
