"""One worker as the router knows it, and what else is heard under its id."""

import asyncio
from dataclasses import dataclass, field

import grpc
import structlog

from services.router.core.job import WorkerInfo
from services.router.stages import FROM_PROTO
from triptych.durations import seconds_of
from triptych.heartbeats import REMEDY, Incarnation, incarnation
from triptych.tls import Stamp
from triptych.v1.worker_pb2 import WorkerHeartbeat, WorkerState

log = structlog.get_logger()

_MAX_MERGE_KEYS = 64
# A worker that misses so many of its heartbeats gives way to another that has its id.
_MISSED_BEATS = 3
_USUAL_BEAT_S = 1.0
# The first heartbeat after a twin's may have been on its way already.
_PROOF_BEATS = 2
_MAX_REFUSED = 16


@dataclass(slots=True)
class KnownWorker:
    """A worker, its newest heartbeat and when it came (monotonic seconds), and the channel to it.

    `stamp` is of the certificates that the channel was opened with. `shunned`: it said that it takes no work, which its
    next heartbeat is to tell too. `told`: what the scheduler knows. `beaten` is set by its next heartbeat.

    `twin` is the newest heartbeat of another process under its id, which came at `twin_s`; `outlived`: how many of its
    own have come since the twin's first. `refused` are the processes that were logged.
    """

    heartbeat: WorkerHeartbeat
    heard_s: float
    channel: grpc.aio.Channel
    stamp: Stamp = ()
    shunned: bool = False
    told: WorkerInfo | None = None
    beaten: asyncio.Event = field(default_factory=asyncio.Event)
    twin: WorkerHeartbeat | None = None
    twin_s: float = 0.0
    outlived: int = 0
    refused: set[Incarnation] = field(default_factory=set)

    @property
    def worker_id(self) -> str:
        return self.heartbeat.worker_id

    def info(self) -> WorkerInfo:
        """As the scheduler sees it."""
        beat = self.heartbeat
        return WorkerInfo(
            worker_id=beat.worker_id,
            stage=FROM_PROTO[beat.stage],
            models=frozenset(model.profile.name for model in beat.models),
            resident=frozenset(model.profile.name for model in beat.models if model.resident),
            slots=max(1, beat.max_active_jobs),
            ready=beat.state == WorkerState.WORKER_STATE_READY and not self.shunned,
            labels=tuple(sorted(beat.labels.items())),
            merge_keys=frozenset(beat.merge_keys[:_MAX_MERGE_KEYS]),
        )

    def hear(self, beat: WorkerHeartbeat, now_s: float) -> None:
        """It is there still."""
        self.heartbeat, self.heard_s, self.shunned = beat, now_s, False
        self.beaten.set()
        self.beaten = asyncio.Event()
        if self.twin is not None:
            self.outlived += 1
            if self.outlived >= _PROOF_BEATS:
                self.refuse(self.twin)

    def challenge(self, beat: WorkerHeartbeat, now_s: float) -> None:
        """Another process has its id. Only if this one is silent from now on, the other is taken."""
        if self.twin is None or incarnation(self.twin) != incarnation(beat):
            self.outlived = 0
        self.twin, self.twin_s = beat, now_s

    def refuse(self, beat: WorkerHeartbeat) -> None:
        """Say why another process is not used; of each once."""
        if incarnation(beat) in self.refused or len(self.refused) >= _MAX_REFUSED:
            return
        self.refused.add(incarnation(beat))
        log.error(
            "worker_refused",
            worker=self.worker_id,
            address=self.heartbeat.address,
            stage=FROM_PROTO[self.heartbeat.stage].value,
            refused_address=beat.address,
            refused_stage=FROM_PROTO[beat.stage].value,
            why="the worker at `address` has this id, and was there before",
            remedy=REMEDY,
        )

    def patience_s(self, timeout_s: float, now_s: float) -> float:
        """For how many seconds it may be silent: less while another process has its id."""
        beat_s = seconds_of(self.heartbeat.interval) or _USUAL_BEAT_S
        contested = self.twin is not None and now_s - self.twin_s < _MISSED_BEATS * beat_s
        return min(timeout_s, _MISSED_BEATS * beat_s) if contested else timeout_s
