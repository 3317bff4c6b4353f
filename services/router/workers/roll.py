"""The newest heartbeat of each worker, kept by every router: one that begins to lead knows its workers at once."""

import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from nats.aio.client import Client
from nats.aio.subscription import Subscription

from services.router.workers.fleet import HEARTBEAT_SUBJECTS, MAX_WORKERS


class Roll:
    """Used as `async with`. Heartbeats are kept as they came; who uses one checks it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._beats: dict[str, tuple[float, bytes]] = {}
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
        self._beats = {subject: beat for subject, beat in self._beats.items() if beat[0] >= since_s}
        return iter([(subject, data) for subject, (_, data) in self._beats.items()])

    async def _hear(self, message: Any) -> None:
        if message.subject in self._beats or len(self._beats) < MAX_WORKERS:
            self._beats[message.subject] = (time.monotonic(), message.data)
