"""The accounts of a suite's NATS server: one a role, with the subjects that it needs and no more.

So a decoder that somebody has taken over can put outputs, and cannot put conditioning, write jobs, or read what they
ask for. The streams are the router's; the other accounts import what they may ask of them. A user's permissions alone
would not do: a question says where its answer goes, NATS lets it name any subject, and an answer that comes to a
stream's subject is stored. Across accounts it comes to a subject of the asker's own account, where nobody listens.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from triptych.exchange.connection import inbox_prefix
from triptych.exchange.store import STREAMS, SUBJECT_PREFIX
from triptych.exchange.streams import events_subject
from triptych.heartbeats import heartbeat_subject
from triptych.tls import TlsFiles

ROLES = ("router", "encoder", "denoiser", "decoder")
_WORKERS = ROLES[1:]
_ANSWER_TTL = "1m"
_HANDSHAKE_S = 10
_PREVIEW_LATENTS = "triptych.v1.preview.latents.*"
_PREVIEW_MADE = "triptych.v1.preview.made.*"


@dataclass(frozen=True, slots=True)
class Permissions:
    """What a user may do: ask the streams, tell the router, request of decoders, and hear.

    `answers`: it may answer each request that reached it.
    """

    asks: tuple[str, ...] = ()
    tells: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    hears: tuple[str, ...] = ()
    answers: bool = False

    @property
    def publish(self) -> tuple[str, ...]:
        """Subjects that it may publish to."""
        return (*self.asks, *self.tells, *self.requests)


def permissions(role: str) -> Permissions:
    """What a role may do. Raises `KeyError` for none of `ROLES`."""
    own = inbox_prefix(role) + ".>"
    return {
        # It owns the streams: only what it may hear is bounded.
        "router": Permissions(
            asks=(">",), hears=(own, heartbeat_subject("*", "*"), _PREVIEW_MADE, events_subject("*"))
        ),
        "encoder": Permissions(
            asks=(_LEADERS, *_writer("conditioning"), *_reader("conditioning"), *_bucket("conditioning")),
            tells=(heartbeat_subject("encode", "*"),),
            hears=(own, heartbeat_subject("encode", "*")),
        ),
        "denoiser": Permissions(
            asks=(_LEADERS, *_reader("conditioning"), *_writer("latents"), *_reader("latents")),
            tells=(heartbeat_subject("denoise", "*"),),
            requests=(_PREVIEW_LATENTS,),
            hears=(own, heartbeat_subject("denoise", "*")),
        ),
        "decoder": Permissions(
            asks=(
                _LEADERS,
                *_reader("conditioning"),
                *_reader("latents"),
                *_writer("outputs"),
                *_bucket("preview_maps"),
            ),
            tells=(heartbeat_subject("decode", "*"), _PREVIEW_MADE),
            hears=(own, heartbeat_subject("decode", "*"), _PREVIEW_LATENTS),
            answers=True,
        ),
    }[role]


def server_config(base: str, passwords: Mapping[str, str], tls: TlsFiles | None = None) -> str:
    """A server's configuration: the base, an account for each role, mutual TLS. Passwords are letters and digits."""
    accounts = "\n".join(_account(role, passwords[role]) for role in ROLES)
    encryption = _encryption(tls) if tls is not None else ""
    return f"{base}\n# Made by Triptych; made anew at each start.\naccounts {{\n{accounts}\n}}\n{encryption}"


def _encryption(tls: TlsFiles) -> str:
    """`handshake_first`: no word in clear, so that nobody between can say that there is no TLS here."""
    named = {"cert_file": tls.certificate, "key_file": tls.key, "ca_file": tls.ca}
    files = "".join(f"  {name}: {json.dumps(str(path))}\n" for name, path in named.items())
    return f"tls {{\n{files}  verify: true\n  handshake_first: true\n  timeout: {_HANDSHAKE_S}\n}}\n"


def _account(role: str, password: str) -> str:
    exports, imports = _shared(role)
    streams = "    jetstream: enabled\n" if role == "router" else ""
    return (
        f"  {role} {{\n{streams}"
        f"    users: [\n{_user(role, password)}\n    ]\n"
        f"    exports: [{_listed(exports)}]\n"
        f"    imports: [{_listed(imports)}]\n"
        f"    mappings: {{{_listed(_mappings(role))}}}\n"
        "  }"
    )


def _shared(role: str) -> tuple[list[str], list[str]]:
    """What an account lets others have, and what it has of theirs."""
    if role == "router":
        asked = [(subject, worker) for worker in _WORKERS for subject in permissions(worker).asks]
        told = [(subject, worker) for worker in _WORKERS for subject in permissions(worker).tells]
        takers = {subject: [worker for each, worker in asked if each == subject] for subject, _ in asked}
        exports = [_export("service", subject, *workers) for subject, workers in takers.items()]
        return exports, [_import("stream", worker, subject) for subject, worker in told]
    allowed = permissions(role)
    exports = [_export("stream", subject, "router") for subject in allowed.tells]
    if allowed.answers:
        exports.append(_export("service", _PREVIEW_LATENTS, "denoiser"))
    imports = [_import("service", "router", subject, _sent_as(subject)) for subject in allowed.asks]
    return exports, [*imports, *(_import("service", "decoder", subject) for subject in allowed.requests)]


def _mappings(role: str) -> list[str]:
    asked = permissions(role).asks if role != "router" else ()
    return [f'"{subject}": "{_sent_as(subject)}"' for subject in asked if _sent_as(subject) != subject]


def _export(kind: str, subject: str, *takers: str) -> str:
    return f'{{ {kind}: "{subject}", accounts: [{", ".join(takers)}] }}'


def _import(kind: str, account: str, subject: str, sent_as: str = "") -> str:
    to = f', to: "{sent_as}"' if sent_as not in ("", subject) else ""
    return f'{{ {kind}: {{ account: {account}, subject: "{subject}" }}{to} }}'


def _sent_as(subject: str) -> str:
    """What a worker's question is renamed to: JetStream's own API would say that its account has no streams."""
    renamed = subject.startswith(_API) and not subject.startswith(f"{_API}DIRECT.")
    return subject.replace(_API, _STREAMS_API, 1) if renamed else subject


def _listed(entries: list[str]) -> str:
    return "".join(f"\n      {entry}" for entry in entries) + "\n    "


def _user(role: str, password: str) -> str:
    allowed = permissions(role)
    sent = allowed.publish if role == "router" else tuple(map(_sent_as, allowed.publish))
    answers = f', allow_responses: {{ max: 1, ttl: "{_ANSWER_TTL}" }}' if allowed.answers else ""
    return (
        f'      {{ user: "{role}", password: "{password}", permissions: {{\n'
        f"          publish: {{ allow: {_subjects(sent)} }}\n"
        f"          subscribe: {{ allow: {_subjects(allowed.hears)} }}{answers} }} }}"
    )


def _subjects(subjects: tuple[str, ...]) -> str:
    return "[" + ", ".join(f'"{subject}"' for subject in subjects) + "]"


_API = "$JS.API."
_STREAMS_API = "triptych.streams."
# Which terms of routers there have been.
_LEADERS = "$JS.API.STREAM.INFO.KV_leader"


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
