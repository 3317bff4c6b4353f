"""The workers that are there, as their heartbeats tell it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2, health_pb2_grpc
from nats.aio.client import Client

from services.router.core.estimator import Serving
from services.router.core.events import Event, WorkerLost, WorkerSeen
from services.router.core.job import Stage, Task, WorkerInfo
from services.router.pricing import device_kind
from services.router.stages import FROM_PROTO
from services.router.workers.links import WorkerLinks
from triptych.address import Address
from triptych.heartbeats import heartbeat_subject, is_worker_id
from triptych.rpc.channel import RENEWAL_GRACE_S
from triptych.tls import Stamp, TlsError
from triptych.v1.worker_pb2 import ModelProfile, WorkerHeartbeat, WorkerState

log = structlog.get_logger()

HEARTBEAT_SUBJECTS = heartbeat_subject("*", "*")
_MAX_ADDRESS = 262
# Of each stage: whoever floods one keeps no worker of another out.
MAX_WORKERS = 4096
_MAX_MERGE_KEYS = 64
_PROBE_S = 1.0


@dataclass(slots=True)
class KnownWorker:
    """A worker, its newest heartbeat and when it came (monotonic seconds), and the channel to it.

    `stamp` is of the certificates that the channel was opened with. `shunned`: it said that it takes no work, which its
    next heartbeat is to tell too. `told`: what the scheduler knows.
    """

    heartbeat: WorkerHeartbeat
    heard_s: float
    channel: grpc.aio.Channel
    stamp: Stamp = ()
    shunned: bool = False
    told: WorkerInfo | None = None

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


class Fleet:
    """Workers by id. Reports `WorkerSeen` when one joins or changes, `WorkerLost` when one is gone.

    `on_lost` is called before that report: it gives up the calls to the worker, and tells which of their tasks had not
    reached it. `on_profile` is called when a worker tells something new of a model, `on_models` when it tells something
    new of how it serves its models.
    """

    def __init__(
        self,
        timeout_s: float,
        report: Callable[[Event], None],
        on_lost: Callable[[str], frozenset[Task]],
        on_profile: Callable[[ModelProfile], None],
        on_models: Callable[[WorkerHeartbeat], None] = lambda _: None,
        links: WorkerLinks | None = None,
    ) -> None:
        self._links = links or WorkerLinks()
        self._timeout_s = timeout_s
        self._report = report
        self._on_lost = on_lost
        self._on_profile = on_profile
        self._on_models = on_models
        self._workers: dict[str, KnownWorker] = {}
        # Kept when the last worker that serves a model is gone.
        self._profiles: dict[str, ModelProfile] = {}
        self._closing: set[asyncio.Task[None]] = set()
        # Channels whose certificates were renewed, until their calls are over.
        self._renewed: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[KnownWorker]:
        return iter([worker for _, worker in sorted(self._workers.items())])

    def get(self, worker_id: str) -> KnownWorker | None:
        return self._workers.get(worker_id)

    def profile(self, model: str) -> ModelProfile | None:
        """What workers told of a model; None if none has yet."""
        return self._profiles.get(model)

    def serving(self, model: str) -> Serving:
        """Who serves a model now."""
        devices: dict[Stage, Counter[str]] = {stage: Counter() for stage in Stage}
        hot: set[Stage] = set()
        for known in self:
            info = known.info()
            if info.ready and model in info.models:
                devices[info.stage][device_kind(known.heartbeat.device)] += 1
                if model in info.resident:
                    hot.add(info.stage)
        cold = frozenset(stage for stage, kinds in devices.items() if kinds and stage not in hot)
        return Serving(devices, cold)

    async def run(self, client: Client) -> None:
        """Listen for heartbeats and miss them, until cancelled."""

        async def hear(message: Any) -> None:
            self.hear(message.subject, message.data)

        heartbeats = await client.subscribe(HEARTBEAT_SUBJECTS, cb=hear)
        pause_s = self._timeout_s / 10
        try:
            while True:
                began_s = monotonic()
                await asyncio.sleep(pause_s)
                self._miss(monotonic() - began_s - pause_s)
        finally:
            await heartbeats.unsubscribe()

    async def close(self) -> None:
        """Close every channel. Reports nothing."""
        channels = [worker.channel for worker in self._workers.values()]
        self._workers.clear()
        for renewed in self._renewed:
            renewed.cancel()
        await asyncio.gather(*(channel.close() for channel in channels), *self._closing)

    def hear(self, subject: str, data: bytes) -> None:
        """Take a heartbeat in. One that is malformed, or not of the subject's worker, is logged and dropped."""
        beat = _parse(subject, data)
        if beat is None or not self._has_place(beat):
            log.warning("heartbeat_dropped", subject=subject)
            return
        try:
            self._take(beat)
        except TlsError as error:
            log.warning("worker_unreachable", worker=beat.worker_id, error=str(error))

    def _has_place(self, beat: WorkerHeartbeat) -> bool:
        """Not if its stage is full, or its id is a worker's of another: that one would be taken to be gone."""
        known = self._workers.get(beat.worker_id)
        if known is not None:
            return known.heartbeat.stage == beat.stage
        return sum(worker.heartbeat.stage == beat.stage for worker in self._workers.values()) < MAX_WORKERS

    def _take(self, beat: WorkerHeartbeat) -> None:
        known = self._workers.get(beat.worker_id)
        if known is not None and _restarted(known.heartbeat, beat):
            self.lose(beat.worker_id, "it was started anew")
            known = None
        is_news = known is None or known.heartbeat.models != beat.models
        if known is None:
            known = KnownWorker(beat, monotonic(), self._links.open(beat), self._links.stamp)
            self._workers[beat.worker_id] = known
            log.info("worker_joined", worker=beat.worker_id, stage=FROM_PROTO[beat.stage].value, address=beat.address)
        else:
            known.heartbeat, known.heard_s, known.shunned = beat, monotonic(), False
            if known.stamp != self._links.stamp:
                self._renew(known)
        for model in beat.models:
            self._learn(model.profile)
        if is_news:
            self._on_models(beat)
        self._tell(known)

    def shun(self, worker_id: str) -> None:
        """The worker has refused work: give it none, at least until its next heartbeat."""
        known = self._workers.get(worker_id)
        if known is not None and not known.shunned:
            known.shunned = True
            self._tell(known)

    def lose(self, worker_id: str, why: str) -> None:
        """The worker is gone. It is known again with its next heartbeat, if there is one."""
        known = self._workers.pop(worker_id, None)
        if known is None:
            return
        log.warning("worker_lost", worker=worker_id, why=why)
        unbegun = self._on_lost(worker_id)
        _keep(self._closing, known.channel.close())
        self._report(WorkerLost(worker_id, unbegun))

    async def answers(self, worker_id: str) -> bool:
        """Whether a worker whose call failed can still be reached: asks its health over a connection of its own."""
        known = self._workers.get(worker_id)
        if known is None:
            return False
        channel = self._links.open(known.heartbeat)
        try:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=_PROBE_S)
        except grpc.aio.AioRpcError:
            return False
        finally:
            await channel.close()
        return True

    def _renew(self, known: KnownWorker) -> None:
        """New certificates: new calls go over a new channel, those under way end on the old one."""
        channel, stamp = self._links.open(known.heartbeat), self._links.stamp
        _keep(self._renewed, known.channel.close(RENEWAL_GRACE_S))
        known.channel, known.stamp = channel, stamp
        log.info("worker_channel_renewed", worker=known.worker_id)

    def _tell(self, known: KnownWorker) -> None:
        info = known.info()
        if info != known.told:
            known.told = info
            self._report(WorkerSeen(info))

    def _miss(self, deaf_s: float) -> None:
        """Lose who was silent for too long. While this process was held up, nobody was: what they sent still waits."""
        now_s = monotonic()
        for worker in list(self._workers.values()):
            worker.heard_s = min(now_s, worker.heard_s + max(0.0, deaf_s))
            if worker.heard_s < now_s - self._timeout_s:
                self.lose(worker.worker_id, f"no heartbeat for {self._timeout_s:g} s")

    def _learn(self, profile: ModelProfile) -> None:
        known = self._profiles.get(profile.name)
        if known is None or known != profile:
            if known is not None and known.fingerprint != profile.fingerprint:
                log.warning("model_changed", model=profile.name, fingerprint=profile.fingerprint)
            self._profiles[profile.name] = profile
            self._on_profile(profile)


def _keep(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _parse(subject: str, data: bytes) -> WorkerHeartbeat | None:
    try:
        beat = WorkerHeartbeat.FromString(data)
    except DecodeError:
        return None
    good = (
        is_worker_id(beat.worker_id)
        and _is_address(beat.address)
        and beat.stage in FROM_PROTO
        # A worker's own NATS user lets it speak for workers of its stage only.
        and subject == heartbeat_subject(FROM_PROTO[beat.stage].value, beat.worker_id)
    )
    return beat if good else None


def _is_address(text: str) -> bool:
    try:
        return len(text) <= _MAX_ADDRESS and not Address.parse(text).is_everywhere
    except ValueError:
        return False


def _restarted(old: WorkerHeartbeat, new: WorkerHeartbeat) -> bool:
    return old.start_time != new.start_time or new.sequence < old.sequence or old.address != new.address
