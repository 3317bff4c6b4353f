"""The cache of conditioning: in this process by bytes, on the exchange between replicas and restarts."""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import nats.errors
import nats.js.errors
import structlog
from nats.js.kv import KeyValue

from triptych.exchange import Bundle, Exchange, TensorData, Value
from triptych.v1.job_pb2 import Conditioning
from triptych.v1.worker_pb2 import CacheStats

log = structlog.get_logger()
BUCKET = "conditioning"
STORE = "conditioning"


@dataclass(frozen=True, slots=True)
class Found:
    """An entry, and whether a block had to run for it."""

    conditioning: Conditioning
    cached: bool


@dataclass(slots=True)
class _Kept:
    conditioning: Conditioning
    bundle: Bundle
    byte_size: int
    until_s: float


class ConditioningCache:
    """Finds conditioning by key, or has it made: once, however many ask at the same time.

    An entry is a reference to a bundle on the exchange. It is looked up in this process first (at most `max_bytes` of
    bundles for at most `ttl_s`, least recently used go first), then in the KV bucket that all encoders share. What has
    left the exchange is put there again, from memory if it is still here.
    """

    def __init__(self, exchange: Exchange, max_bytes: int, ttl_s: float) -> None:
        self._exchange = exchange
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._making: dict[str, asyncio.Task[Found]] = {}
        self._sharing: set[asyncio.Task[None]] = set()
        self._bucket: KeyValue | None = None
        self.stats = CacheStats()

    async def has(self, key: str) -> bool:
        """Whether `find_or_make` would find it."""
        return key in self._making or await self.find(key) is not None

    async def find(self, key: str) -> Conditioning | None:
        """The entry, its bundle known to be on the exchange now; None if there is none."""
        kept = self._kept.get(key)
        if kept is not None and kept.until_s > time.monotonic():
            return await self._from_memory(key, kept)
        shared = await self._from_exchange(key)
        if shared is not None:
            self.stats.shared_hit_count += 1
        return shared

    async def find_or_make(self, key: str, make: Callable[[], Awaitable[tuple[Conditioning, Bundle]]]) -> Found:
        """The entry, made by `make` if need be (which leaves `data` empty). Equal keys wait for one computation."""
        making = self._making.get(key)
        if making is not None:
            self.stats.joined_count += 1
            return Found((await asyncio.shield(making)).conditioning, cached=True)
        making = asyncio.create_task(self._find_or_make(key, make))
        self._making[key] = making
        making.add_done_callback(lambda task: self._made(key, task))
        return await asyncio.shield(making)

    async def _find_or_make(self, key: str, make: Callable[[], Awaitable[tuple[Conditioning, Bundle]]]) -> Found:
        found = await self.find(key)
        if found is not None:
            return Found(found, cached=True)
        self.stats.miss_count += 1
        conditioning, bundle = await make()
        conditioning.key = key
        return Found(await self._publish(conditioning, bundle), cached=False)

    def _made(self, key: str, task: "asyncio.Task[Found]") -> None:
        del self._making[key]
        if not task.cancelled():
            # Whoever waits gets the error from the task itself; if nobody does any more, it must not be lost silently.
            error = task.exception()
            if error is not None:
                # Its words may quote a prompt; whoever waits is told them.
                log.info("conditioning_not_made", key=key, error=type(error).__name__)

    async def _publish(self, conditioning: Conditioning, bundle: Bundle) -> Conditioning:
        conditioning.data.CopyFrom(await self._exchange.put(STORE, bundle))
        self._keep(conditioning, bundle)
        # Whoever waits need not wait for this.
        sharing = asyncio.create_task(self._share(conditioning))
        self._sharing.add(sharing)
        sharing.add_done_callback(self._sharing.discard)
        return conditioning

    async def _share(self, conditioning: Conditioning) -> None:
        """Tell the other encoders. They can do without: a bucket that is full or away costs them a computation."""
        try:
            await (await self._index()).put(conditioning.key, conditioning.SerializeToString())
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            log.warning("conditioning_not_shared", key=conditioning.key, error=repr(error))

    async def _from_memory(self, key: str, kept: _Kept) -> Conditioning:
        self._kept.move_to_end(key)
        self.stats.memory_hit_count += 1
        if await self._exchange.exists(kept.conditioning.data):
            return kept.conditioning
        renewed = Conditioning()
        renewed.CopyFrom(kept.conditioning)
        return await self._publish(renewed, kept.bundle)

    async def _from_exchange(self, key: str) -> Conditioning | None:
        try:
            entry = await (await self._index()).get(key)
        except nats.js.errors.KeyNotFoundError:
            return None
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            log.warning("conditioning_index_unreachable", error=repr(error))
            return None
        conditioning = Conditioning.FromString(entry.value or b"")
        return conditioning if await self._exchange.exists(conditioning.data) else None

    def _keep(self, conditioning: Conditioning, bundle: Bundle) -> None:
        size = sum(_byte_size(entry.value) for entry in bundle.values())
        if size > self._max_bytes:
            return
        with contextlib.suppress(KeyError):
            self.stats.byte_size -= self._kept.pop(conditioning.key).byte_size
        self._kept[conditioning.key] = _Kept(conditioning, bundle, size, time.monotonic() + self._ttl_s)
        self.stats.byte_size += size
        while self.stats.byte_size > self._max_bytes:
            _, dropped = self._kept.popitem(last=False)
            self.stats.byte_size -= dropped.byte_size

    async def _index(self) -> KeyValue:
        if self._bucket is None:
            self._bucket = await self._exchange.bucket(BUCKET)
        return self._bucket


def _byte_size(value: Value) -> int:
    if isinstance(value, TensorData):
        return memoryview(value.data).nbytes
    if isinstance(value, list | tuple):
        return sum(_byte_size(item) for item in value)
    return len(value) if isinstance(value, bytes | str) else 8
