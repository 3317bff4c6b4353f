"""The newest heartbeat of each worker, kept by every router: one that begins to lead knows its workers at once."""

import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from nats.aio.client import Client
from nats.aio.subscription import Subscription

from services.router.core.job import Stage
from services.router.workers.fleet import HEARTBEAT_SUBJECTS, MAX_WORKERS


class Roll:
    """Used as `async with`. Heartbeats are kept as they came; who uses one checks it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        # By stage and subject, the newest last.
        self._beats: dict[str, dict[str, tuple[float, bytes]]] = {stage.value: {} for stage in Stage}
        self._subscription: Subscription | None = None

    async def __aenter__(self) -> Self:
        self._subscription = await self._client.subscribe(HEARTBEAT_SUBJECTS, cb=self._hear)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._subscription is not None and self._client.is_connected:
            await self._subscription.unsubscribe()

    def fresh(self, age_s: float) -> Iterator[tuple[str, bytes]]:
        """Subjects and heartbeats that came within so many seconds."""
        since_s = time.monotonic() - age_s
        kept = [item for beats in self._beats.values() for item in beats.items()]
        return iter([(subject, data) for subject, (heard_s, data) in kept if heard_s >= since_s])

    async def _hear(self, message: Any) -> None:
        beats = self._beats.get(message.subject.split(".")[-2])
        if beats is None:
            return
        beats.pop(message.subject, None)
        beats[message.subject] = (time.monotonic(), message.data)
        if len(beats) > MAX_WORKERS:
            del beats[next(iter(beats))]
