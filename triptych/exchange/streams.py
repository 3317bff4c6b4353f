"""The streams and key-value buckets of a suite: what they should be, and making them so.

Every store refuses newcomers at its byte limit (`discard: new`) and never drops what it has accepted. A bundle is kept
for its store's TTL after the last job that names it is over, which only a router can tell: the streams themselves keep
it for as long as there may be such a job.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

from triptych.exchange.config import ExchangeConfig
from triptych.exchange.disk import says_disk_full
from triptych.exchange.errors import DiskFull, StreamConflict
from triptych.exchange.store import STREAMS, SUBJECT_PREFIX

EVENTS_STREAM = "EVENTS"
EVENTS_SUBJECT_PREFIX = "triptych.events"

# Within which the server knows a Nats-Msg-Id again.
DEDUPLICATION_S = 120.0
_NAME_IN_USE = 10058
_LOOK_EVERY_S = 0.2
_STORAGE_EXCEEDED = 10047
_STORAGE_PAUSES_S = (0.05, 0.1, 0.2, 0.4)


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """One stream: its subjects, bounds and whether it is a key-value bucket."""

    name: str
    subject: str
    max_bytes: int
    ttl_s: float
    messages_per_subject: int
    bucket: bool = False


def events_subject(job_id: str) -> str:
    """Where a job's events are published and read."""
    return f"{EVENTS_SUBJECT_PREFIX}.{job_id}"


def stream_specs(config: ExchangeConfig) -> tuple[StreamSpec, ...]:
    """All streams of a suite."""
    return (
        _store("conditioning", config.conditioning_max_bytes, config.jobs_ttl_s + config.conditioning_ttl_s),
        _store("latents", config.latents_max_bytes, config.jobs_ttl_s + config.latents_ttl_s),
        _store("outputs", config.outputs_max_bytes, config.jobs_ttl_s + config.outputs_ttl_s),
        StreamSpec(EVENTS_STREAM, events_subject("*"), config.events_max_bytes, config.events_ttl_s, -1),
        _bucket("jobs", config.jobs_max_bytes, config.jobs_ttl_s),
        _bucket("conditioning", config.conditioning_index_max_bytes, config.conditioning_index_ttl_s),
        _bucket("preview_maps", config.preview_maps_max_bytes, config.preview_maps_ttl_s),
        # Last: every worker may look whether it is there.
        _bucket("leader", config.leader_max_bytes, config.leader_ttl_s),
    )


def _store(store: str, max_bytes: int, ttl_s: float) -> StreamSpec:
    return StreamSpec(STREAMS[store], f"{SUBJECT_PREFIX}.{store}.>", max_bytes, ttl_s, messages_per_subject=1)


def _bucket(bucket: str, max_bytes: int, ttl_s: float) -> StreamSpec:
    return StreamSpec(f"KV_{bucket}", f"$KV.{bucket}.>", max_bytes, ttl_s, messages_per_subject=1, bucket=True)


def _settings(spec: StreamSpec, config: ExchangeConfig) -> dict[str, Any]:
    """The fields of the stream's configuration that we care about; the rest is the server's."""
    return {
        "name": spec.name,
        "subjects": [spec.subject],
        "retention": RetentionPolicy.LIMITS,
        "storage": StorageType(config.storage),
        "num_replicas": config.replicas,
        "discard": DiscardPolicy.NEW,
        "max_bytes": spec.max_bytes,
        "max_age": spec.ttl_s,
        "max_msgs_per_subject": spec.messages_per_subject,
        "duplicate_window": min(DEDUPLICATION_S, spec.ttl_s),
        "allow_direct": True,
        "allow_msg_ttl": True,
        "allow_rollup_hdrs": spec.bucket,
        "deny_delete": spec.bucket,
    }


async def reconcile(jetstream: JetStreamContext, config: ExchangeConfig) -> None:
    """Create the streams that are missing and bring the others to their configuration; safe to do at once by many.

    Raises StreamConflict, naming the stream, when the server refuses a change; DiskFull;
    nats.js.errors.ServiceUnavailableError while JetStream is not there.
    """
    for spec in stream_specs(config):
        try:
            await _reconcile_patiently(jetstream, _settings(spec, config))
        except nats.js.errors.ServiceUnavailableError:
            raise
        except nats.js.errors.APIError as error:
            if says_disk_full(error.description or ""):
                raise DiskFull(spec.name) from error
            raise StreamConflict(spec.name, error.description or str(error)) from error


async def wait_for_streams(jetstream: JetStreamContext, config: ExchangeConfig) -> None:
    """Wait until another process has made the streams: the last of them is there. For ever if none does."""
    last = stream_specs(config)[-1].name
    while True:
        try:
            await jetstream.stream_info(last)
        except nats.js.errors.NotFoundError:
            await asyncio.sleep(_LOOK_EVERY_S)
        else:
            return


async def _reconcile_patiently(jetstream: JetStreamContext, settings: dict[str, Any]) -> None:
    """While several create one stream at once, the server counts its bytes several times over, and may find too few."""
    for pause_s in _STORAGE_PAUSES_S:
        try:
            await _reconcile_one(jetstream, settings)
        except nats.js.errors.APIError as error:
            if error.err_code != _STORAGE_EXCEEDED:
                raise
            await asyncio.sleep(pause_s)
        else:
            return
    await _reconcile_one(jetstream, settings)


async def _reconcile_one(jetstream: JetStreamContext, settings: dict[str, Any]) -> None:
    try:
        found = (await jetstream.stream_info(settings["name"])).config
    except nats.js.errors.NotFoundError:
        if await _create(jetstream, settings):
            return
        found = (await jetstream.stream_info(settings["name"])).config
    if any(getattr(found, field) != wanted for field, wanted in settings.items()):
        await jetstream.update_stream(found.evolve(**settings))


async def _create(jetstream: JetStreamContext, settings: dict[str, Any]) -> bool:
    """Whether it is now as wanted; False when another process was first, with other settings."""
    try:
        await jetstream.add_stream(StreamConfig(**settings))
    except nats.js.errors.APIError as error:
        if error.err_code == _NAME_IN_USE:
            return False
        raise
    return True
