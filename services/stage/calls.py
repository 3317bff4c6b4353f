"""The calls that a worker has under way: bounded, fenced by the router's term, waited for at the end."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from triptych.errors import Reason, TriptychError
from triptych.v1.encoder_service_pb2 import StageCall
from triptych.v1.worker_pb2 import ActiveJob

log = structlog.get_logger()


@dataclass(eq=False)
class Call:
    """One call under way. `fraction` is the share of its work that is done, 0 to 1."""

    stage_call: StageCall
    task: "asyncio.Task[object]"
    fraction: float = 0.0
    # Why it was stopped, if it was.
    stopped: TriptychError | None = field(default=None)

    def stop(self, error: TriptychError) -> None:
        """End the call with this error."""
        self.stopped = error
        self.task.cancel()


class Calls:
    """At most `limit` calls at once. The newest term of a router stops what older terms started.

    `doubted` is set when a call was refused as of an older term: `correct` is to tell which terms there were.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._epoch = 0
        self._admitted_count = 0
        self._draining = False
        self._active: set[Call] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self.doubted = asyncio.Event()

    @property
    def active(self) -> list[ActiveJob]:
        """What runs, for the heartbeat."""
        return [
            ActiveJob(job_id=call.stage_call.job_id, attempt=call.stage_call.attempt, fraction=call.fraction)
            for call in self._active
        ]

    @property
    def admitted_count(self) -> int:
        """How many were let in so far."""
        return self._admitted_count

    async def idle(self) -> None:
        """Wait until none is under way."""
        await self._idle.wait()

    @property
    def draining(self) -> bool:
        return self._draining

    @contextmanager
    def admit(self, stage_call: StageCall) -> Iterator[Call]:
        """Let a call in, for as long as the block lasts.

        Raises `TriptychError`: DRAINING, STALE_EPOCH, NO_SLOT; and the reason for which the call was stopped.
        """
        self._check(stage_call)
        task = asyncio.current_task()
        assert task is not None
        call = Call(stage_call, task)
        self._active.add(call)
        self._admitted_count += 1
        self._idle.clear()
        try:
            with structlog.contextvars.bound_contextvars(job_id=stage_call.job_id, attempt=stage_call.attempt):
                yield call
        except asyncio.CancelledError:
            if call.stopped is None:
                raise
            task.uncancel()
            raise call.stopped from None
        finally:
            self._active.discard(call)
            if not self._active:
                self._idle.set()

    def check_term(self, stage_call: StageCall) -> None:
        """Raises `TriptychError` (STALE_EPOCH) for a caller whose term is over."""
        if stage_call.epoch < self._epoch:
            self.doubted.set()
            raise TriptychError(
                Reason.STALE_EPOCH, f"term {stage_call.epoch} is over; a router of term {self._epoch} has called since"
            )

    async def drain(self, timeout_s: float) -> None:
        """Let nothing more in; wait for what runs, then stop it."""
        self._draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            for call in list(self._active):
                call.stop(TriptychError(Reason.DRAINING, "the worker is going down"))
            await asyncio.wait_for(self._idle.wait(), 5.0)

    def hand_back(self, waits: Callable[[str], bool]) -> None:
        """End the calls whose jobs wait."""
        for call in list(self._active):
            if waits(call.stage_call.job_id):
                call.stop(TriptychError(Reason.DRAINING, "the worker is going down"))

    def correct(self, newest_epoch: int) -> None:
        """No router has had a later term than this: forget one that claimed to."""
        if self._epoch > newest_epoch:
            log.warning("term_forgotten", epoch=self._epoch, newest_epoch=newest_epoch)
            self._epoch = 0

    def _check(self, stage_call: StageCall) -> None:
        if self._draining:
            raise TriptychError(Reason.DRAINING, "the worker is going down and takes nothing new")
        self.check_term(stage_call)
        self._fence(stage_call)
        if len(self._active) >= self._limit:
            raise TriptychError(Reason.NO_SLOT, f"{self._limit} calls run already")

    def _fence(self, stage_call: StageCall) -> None:
        """Stop what an older term started, and an older call for the same work: it has lost its caller."""
        self._epoch = stage_call.epoch
        for call in list(self._active):
            if call.stopped is None and _is_older(call.stage_call, stage_call):
                log.info("stale_call_stopped", stale_job_id=call.stage_call.job_id, epoch=call.stage_call.epoch)
                call.stop(TriptychError(Reason.STALE_EPOCH, "a newer router, or a newer attempt, has taken over"))
                self._active.discard(call)


def _is_older(running: StageCall, newcomer: StageCall) -> bool:
    if running.epoch != newcomer.epoch:
        return running.epoch < newcomer.epoch
    return running.job_id == newcomer.job_id and running.attempt < newcomer.attempt
