"""The latent exchange: bundles of tensors, by value over JetStream, by reference everywhere else."""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

import nats.aio.client
import nats.errors
import nats.js.errors
import structlog
from nats.js import JetStreamContext
from nats.js.kv import KeyValue

from triptych.errors import Reason
from triptych.exchange import disk
from triptych.exchange.bundle import Bundle, Entry
from triptych.exchange.codec import Encoded, decode, encode
from triptych.exchange.config import ExchangeConfig
from triptych.exchange.connection import NO_RESPONDERS_PAUSE_S, Connection, ConnectionCounters
from triptych.exchange.digest import digest_of
from triptych.exchange.errors import (
    BundleCorrupt,
    BundleGone,
    BundleInvalid,
    ExchangeError,
    ExchangeUnavailable,
    ManifestMalformed,
    StoreFull,
)
from triptych.exchange.message import from_message, to_message
from triptych.exchange.store import STREAMS, SUBJECT_PREFIX, Store, is_bundle_id
from triptych.exchange.streams import reconcile, wait_for_streams
from triptych.exchange.transfer import Download, Lane, aligned_buffer, send_chunks
from triptych.tasks import checked
from triptych.v1.tensor_pb2 import BundleManifest, DataRef

log = structlog.get_logger(__name__)
T = TypeVar("T")

# Bundles up to this size travel over the control connection, so many at once each way.
SMALL_BYTES = 64 * 1024
SMALL_SLOTS = 32
DIGEST_THREADS = 2


class Exchange:
    """A process's way to the bundles, used as `async with Exchange(config) as exchange`.

    Two connections: large bundles travel over one, small ones and the owner's own messages over the other, so that a
    large transfer is never in their way. Every method raises ExchangeUnavailable when NATS does not answer
    within the configured bounds.
    """

    def __init__(self, config: ExchangeConfig) -> None:
        self._config = config
        self._control = Connection(config, "control", on_reconnected=self._restore)
        self._bulk = Connection(config, "bulk")
        self._jetstream: JetStreamContext = self._control.client.jetstream(timeout=config.answer_timeout_s)
        self._small = Lane(self._control, SMALL_SLOTS)
        self._large = Lane(self._bulk, config.window_bytes // config.chunk_bytes)
        self._hashers = ThreadPoolExecutor(DIGEST_THREADS, thread_name_prefix="digest")
        self._background: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Connect, and create or reconcile the streams; raises StreamConflict too."""
        try:
            await self._control.open()
            await self._bulk.open()
            await self._reconcile()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    @property
    def connected(self) -> bool:
        """Whether both connections are up; what a health check should say."""
        return self._control.connected and self._bulk.connected

    @property
    def control(self) -> nats.aio.client.Client:
        """The NATS client for small messages: heartbeats, requests, finished previews."""
        return self._control.client

    @property
    def bulk(self) -> nats.aio.client.Client:
        """The NATS client for large messages: latents to preview."""
        return self._bulk.client

    @property
    def jetstream(self) -> JetStreamContext:
        """JetStream over the control connection."""
        return self._jetstream

    @property
    def counters(self) -> dict[str, ConnectionCounters]:
        """Disconnects, errors and dropped messages, by connection."""
        return {"control": self._control.counters, "bulk": self._bulk.counters}

    async def bucket(self, name: str) -> KeyValue:
        """The key-value bucket "jobs", "conditioning", "leader" or "preview_maps"."""
        try:
            return await self._jetstream.key_value(name)
        except (nats.errors.Error, nats.js.errors.Error) as error:
            raise ExchangeUnavailable(f"bucket {name}: {error}") from error

    async def put(self, store: str, bundle: Bundle) -> DataRef:
        """Store a bundle; it is complete, and acknowledged by the server, when this returns.

        A put that fails, or is cancelled, leaves nothing that can be read. Arrays must not change meanwhile.
        Raises BundleInvalid, StoreFull, DiskFull.
        """
        place = Store(store)
        encoded = encode(bundle)
        most = min(self._config.max_bundle_bytes, self._config.room_bytes(store))
        if encoded.byte_size > most:
            why = f"{encoded.byte_size} bytes; at most {most} by max_bundle_bytes and {store}_max_bytes"
            raise BundleInvalid(why, Reason.STAGE_FAILED)
        ref = DataRef(store=store, bundle_id=secrets.token_hex(16), byte_size=encoded.byte_size)
        try:
            ref.digest = await self._write(place, ref.bundle_id, encoded)
        except StoreFull as error:
            await self._discard(place, ref)
            raise StoreFull(store, encoded.byte_size) from error
        except BaseException:
            self._spawn(self._discard(place, ref))
            raise
        return ref

    async def get(self, ref: DataRef) -> dict[str, Entry]:
        """Fetch a bundle. Its arrays are views into one buffer of their own.

        Raises BundleGone, BundleCorrupt; BundleInvalid when `ref` is no reference.
        """
        place = Store.of(ref)
        data = await self._read_manifest(place, ref)
        if data is None:
            raise BundleGone(ref)
        try:
            manifest, inline = from_message(data)
            self._check(ref, manifest)
            return decode(manifest, await self._read_payload(ref, manifest, inline))
        except ManifestMalformed as error:
            raise BundleCorrupt(ref, str(error)) from error

    async def delete(self, ref: DataRef, *, persist: bool = True) -> None:
        """Remove a bundle; one that is gone already is fine.

        Unless it is to `persist` it is not tried again over another connection: by then somebody may need the bundle.
        """
        await Store.of(ref).purge(self._control, ref.bundle_id, persist=persist)

    async def bundles(self, store: str) -> dict[str, bool]:
        """The ids of all bundles of a store, and whether each is complete: of others the put is under way, or failed.

        What else lies there is left out.
        """
        prefix = f"{SUBJECT_PREFIX}.{Store(store).name}."
        found = await self.subjects(STREAMS[store], f"{prefix}>")
        ids = {subject.removeprefix(prefix).partition(".")[0] for subject in found}
        return {each: Store(store).manifest_subject(each) in found for each in ids if is_bundle_id(each)}

    async def written(self, stream: str, writing: Awaitable[T]) -> T:
        """The answer to a write of the owner's own to a stream.

        Raises what it raises; where no answer will come DiskFull, and ExchangeUnavailable if the connection was lost
        meanwhile: then it may be stored, or not.
        """
        disconnects = self._control.counters.disconnects

        async def check() -> None:
            if self._control.counters.disconnects != disconnects:
                raise ExchangeUnavailable("the connection to NATS was lost before it answered")
            await self.check_writable(stream)

        return await checked(writing, check, disk.SLOW_S)

    async def check_writable(self, stream: str) -> None:
        """Return if no write to a stream has failed; see `disk.check`. Raises DiskFull."""
        await disk.check(self._control, stream)

    async def subjects(self, stream: str, wanted: str) -> dict[str, int]:
        """A stream's subjects that match `wanted`, wildcards allowed, and how many messages each has."""
        found: dict[str, int] = {}
        while True:
            request = json.dumps({"subjects_filter": wanted, "offset": len(found)}).encode()
            answer = json.loads((await self._control.ask(f"$JS.API.STREAM.INFO.{stream}", request)).data)
            if "error" in answer:
                raise ExchangeUnavailable(f"stream {stream}: {answer['error'].get('description')}")
            page = answer["state"].get("subjects") or {}
            found |= page
            if not page or len(found) >= answer.get("total", 0):
                return found

    async def exists(self, ref: DataRef) -> bool:
        """Whether the bundle was committed and its manifest has not expired."""
        return await self._read_manifest(Store.of(ref), ref) is not None

    async def _write(self, place: Store, bundle_id: str, encoded: Encoded) -> bytes:
        manifest = encoded.manifest
        if encoded.byte_size <= self._config.inline_bytes:
            manifest.digest = digest_of(encoded.buffers)
            message = to_message(manifest, encoded.buffers)
        else:
            hashing = asyncio.get_running_loop().run_in_executor(self._hashers, digest_of, encoded.buffers)
            manifest.chunk_bytes = self._config.chunk_bytes
            pieces = encoded.pieces(manifest.chunk_bytes)
            manifest.chunk_count = await send_chunks(self._large, place, bundle_id, pieces)
            manifest.digest = await hashing
            message = to_message(manifest)
        lane = self._lane(encoded.byte_size)
        await lane.write(place, place.manifest_subject(bundle_id), message)
        return manifest.digest

    async def _read_manifest(self, place: Store, ref: DataRef) -> bytes | None:
        return await self._lane(ref.byte_size).read(place, place.manifest_subject(ref.bundle_id))

    def _lane(self, byte_size: int) -> Lane:
        return self._small if byte_size <= SMALL_BYTES else self._large

    async def _read_payload(self, ref: DataRef, manifest: BundleManifest, inline: memoryview) -> memoryview:
        if manifest.chunk_count:
            return await Download(ref, manifest, self._hashers).run(self._large)
        if digest_of([inline]) != manifest.digest:
            raise BundleCorrupt(ref, "the digest differs")
        payload = aligned_buffer(inline.nbytes)
        payload[:] = inline
        return payload

    def _check(self, ref: DataRef, manifest: BundleManifest) -> None:
        if manifest.byte_size != ref.byte_size or manifest.digest != ref.digest:
            raise BundleCorrupt(ref, "the manifest is of another bundle")
        if manifest.byte_size > self._config.max_bundle_bytes:
            raise BundleCorrupt(ref, f"{manifest.byte_size} bytes; at most {self._config.max_bundle_bytes}")

    async def _reconcile(self) -> None:
        try:
            async with asyncio.timeout(self._config.connect_timeout_s):
                await self._reconcile_until_possible()
        except (TimeoutError, nats.errors.Error) as error:
            missing = "JetStream is not available" if self._config.manage_streams else "streams were not made yet"
            raise ExchangeUnavailable(f"the NATS server's {missing} {error}".rstrip()) from error

    async def _reconcile_until_possible(self) -> None:
        while True:
            try:
                if self._config.manage_streams:
                    await reconcile(self._jetstream, self._config)
                else:
                    await wait_for_streams(self._jetstream, self._config)
            except nats.js.errors.ServiceUnavailableError:
                await asyncio.sleep(NO_RESPONDERS_PAUSE_S)
            else:
                return

    def _restore(self) -> None:
        """After a reconnection: a server that has lost its store has lost the streams as well."""
        if not self._config.manage_streams:
            return
        self._spawn(self._reconcile_again())

    async def _reconcile_again(self) -> None:
        try:
            await self._reconcile()
        except ExchangeError as error:
            log.error("streams_not_restored", error=str(error))

    async def _discard(self, place: Store, ref: DataRef) -> None:
        """Remove what a failed put has written; if that fails as well, the store's TTL will do it."""
        try:
            await place.discard(self._lane(ref.byte_size).connection, ref.bundle_id)
        except ExchangeError as error:
            log.warning("bundle_left_behind", store=place.name, bundle_id=ref.bundle_id, error=str(error))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _close(self) -> None:
        if self._background and self.connected:
            await asyncio.wait(self._background, timeout=self._config.answer_timeout_s)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._bulk.close()
        await self._control.close()
        self._hashers.shutdown(wait=False)
