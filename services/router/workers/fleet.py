"""The workers that are there, as their heartbeats tell it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2, health_pb2_grpc
from nats.aio.client import Client

from services.router.core.events import Event, StageRefused, WorkerLost, WorkerReturned, WorkerSeen
from services.router.core.job import Stage, Task
from services.router.estimates.estimator import Serving
from services.router.pricing import device_kind
from services.router.stages import FROM_PROTO
from services.router.workers.deaths import Deaths
from services.router.workers.known_worker import KnownWorker
from services.router.workers.links import WorkerLinks
from triptych.address import Address
from triptych.heartbeats import heartbeat_subject, incarnation, is_worker_id
from triptych.rpc.channel import RENEWAL_GRACE_S
from triptych.tls import TlsError
from triptych.v1.worker_pb2 import ModelProfile, WorkerHeartbeat

log = structlog.get_logger()

HEARTBEAT_SUBJECTS = heartbeat_subject("*", "*")
_MAX_ADDRESS = 262
# Of each stage: whoever floods one keeps no worker of another out.
MAX_WORKERS = 4096
_PROBE_S = 1.0
# The first heartbeat after a call has broken off may have been on its way already.
_PROOF_BEATS = 2


@dataclass(frozen=True, slots=True)
class Refusal:
    """A worker cannot serve its stage of a model, and why: in its own words, for a person."""

    stage: Stage
    worker_id: str
    reason: str


class Fleet:
    """Workers by id. Reports `WorkerSeen` when one joins or changes, `WorkerLost` when one is gone, `WorkerReturned`
    when it had not gone after all.

    Of several processes with one id the first that was heard is the worker, for as long as it is heard.

    Reports `StageRefused` while nobody serves a stage of a model and who is there cannot, for longer than `grace_s`.
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
        grace_s: Callable[[], float] = lambda: inf,
    ) -> None:
        self._links = links or WorkerLinks()
        self._timeout_s = timeout_s
        self._report = report
        self._on_lost = on_lost
        self._on_profile = on_profile
        self._on_models = on_models
        self._grace_s = grace_s
        # Since when nobody serves a stage of a model that is refused (monotonic seconds).
        self._barred: dict[tuple[Stage, str], float] = {}
        self._workers: dict[str, KnownWorker] = {}
        self._deaths = Deaths()
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

    def refusals(self, model: str) -> list[Refusal]:
        """Who cannot serve a model, by worker."""
        return [
            Refusal(FROM_PROTO[known.heartbeat.stage], known.worker_id, refused.reason)
            for known in self
            for refused in known.heartbeat.refused_models
            if refused.name == model
        ]

    def barring(self, model: str) -> list[Refusal]:
        """Why a model cannot be served: the refusals at stages that nobody serves."""
        found = self.refusals(model)
        served = {info.stage for known in self if found and model in (info := known.info()).models and info.ready}
        return [refusal for refusal in found if refusal.stage not in served]

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
                self._tell_barred()
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
            if self._is_the_workers(beat):
                self._take(beat)
        except TlsError as error:
            log.warning("worker_unreachable", worker=beat.worker_id, error=str(error))

    def _has_place(self, beat: WorkerHeartbeat) -> bool:
        """Not if it is unknown and its stage is full."""
        if beat.worker_id in self._workers:
            return True
        return sum(worker.heartbeat.stage == beat.stage for worker in self._workers.values()) < MAX_WORKERS

    def _is_the_workers(self, beat: WorkerHeartbeat) -> bool:
        """Whether it comes from the worker of its id, or from one that is it from now on."""
        if refuted := self._deaths.refuted(beat, monotonic()):
            log.info("worker_returned", worker=beat.worker_id, address=beat.address)
            self._report(WorkerReturned(refuted))
        known = self._workers.get(beat.worker_id)
        if known is None:
            return True
        if known.heartbeat.stage != beat.stage:
            known.refuse(beat)
            return False
        if incarnation(known.heartbeat) == incarnation(beat):
            return beat.sequence >= known.heartbeat.sequence
        if not _replaces(known.heartbeat, beat):
            known.challenge(beat, monotonic())
            return False
        self.lose(beat.worker_id, "it was started anew")
        return True

    def _take(self, beat: WorkerHeartbeat) -> None:
        known = self._workers.get(beat.worker_id)
        is_news = known is None or known.heartbeat.models != beat.models
        before = {each.name: each.reason for each in known.heartbeat.refused_models} if known is not None else {}
        if known is None:
            known = KnownWorker(beat, monotonic(), self._links.open(beat), self._links.stamp)
            self._workers[beat.worker_id] = known
            log.info("worker_joined", worker=beat.worker_id, stage=FROM_PROTO[beat.stage].value, address=beat.address)
        else:
            known.hear(beat, monotonic())
            if known.stamp != self._links.stamp:
                self._renew(known)
        for model in beat.models:
            self._learn(model.profile)
        if is_news:
            self._on_models(beat)
        for refused in beat.refused_models:
            if before.get(refused.name) != refused.reason:
                log.warning("model_refused", model=refused.name, worker=beat.worker_id, why=refused.reason)
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
        log.warning("worker_lost", worker=worker_id, address=known.heartbeat.address, why=why)
        unbegun = self._on_lost(worker_id)
        _keep(self._closing, known.channel.close())
        self._report(WorkerLost(worker_id, unbegun, self._deaths.note(known.heartbeat, monotonic())))

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

    async def lives(self, known: KnownWorker) -> bool:
        """Whether a worker, a call to which has broken off, is the process that it was: waits for its heartbeats."""
        for _ in range(_PROOF_BEATS):
            try:
                await asyncio.wait_for(known.beaten.wait(), self._timeout_s)
            except TimeoutError:
                return False
        return self.get(known.worker_id) is known

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
            patience_s = worker.patience_s(self._timeout_s, now_s)
            if worker.heard_s < now_s - patience_s:
                self.lose(worker.worker_id, f"no heartbeat for {patience_s:g} s")

    def _tell_barred(self) -> None:
        """Report the stages of models for which jobs have waited in vain for long enough."""
        reasons = {
            (FROM_PROTO[known.heartbeat.stage], refused.name): refused.reason
            for known in self._workers.values()
            for refused in known.heartbeat.refused_models
        }
        infos = [known.info() for known in self._workers.values()] if reasons else []
        served = {(info.stage, model) for info in infos if info.ready for model in info.models}
        now_s = monotonic()
        self._barred = {key: self._barred.get(key, now_s) for key in reasons if key not in served}
        for (stage, model), since_s in self._barred.items():
            if now_s - since_s > self._grace_s():
                blame = f"no worker can {stage.value} with {model}: {reasons[stage, model]}"
                self._report(StageRefused(stage, model, blame))

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


def _replaces(old: WorkerHeartbeat, new: WorkerHeartbeat) -> bool:
    """Whether one process must have ended for the other: no two listen at one address."""
    return old.address == new.address and incarnation(old) < incarnation(new)


def _is_address(text: str) -> bool:
    try:
        return len(text) <= _MAX_ADDRESS and not Address.parse(text).is_everywhere
    except ValueError:
        return False
