"""Random histories: whatever happens, and in whatever order, no job is lost or run twice, and no bound is broken."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.router.core.actions import RejectAmendment, Verdict
from services.router.core.config import SchedulerConfig
from services.router.core.events import (
    ConfigReloaded,
    EncodesBounded,
    Event,
    JobAmendRequested,
    JobCancelRequested,
    JobSubmitted,
    LatentsReady,
    ResultGone,
    TaskFailed,
    TaskFinished,
    TaskProgressed,
    TaskSaved,
    Ticked,
    WorkerLost,
    WorkerReturned,
    WorkerSeen,
)
from services.router.core.job import JobRequest, Stage, StageSeconds, Task
from tests.scenarios.model_driver import ModelDriver
from tests.scenarios.strategies import MODELS, configs, requests
from tests.scenarios.virtual_clock import worker


class SchedulerMachine(RuleBasedStateMachine):
    driver: ModelDriver
    job_count = 0
    worker_count = 0
    death_count = 0

    @initialize(config=configs, slots=st.tuples(*[st.lists(st.integers(1, 3), min_size=1, max_size=3)] * 3))
    def begin(self, config: SchedulerConfig, slots: tuple[list[int], list[int], list[int]]) -> None:
        self.driver = ModelDriver(config)
        for stage, counts in zip(Stage, slots, strict=True):
            for count in counts:
                self.join(stage, MODELS, count, True, {}, ())

    def pick(self, data: st.DataObject, tasks: list[Task]) -> Task:
        return data.draw(st.sampled_from(tasks))

    @rule(jobs=st.lists(requests, min_size=1, max_size=6))
    def submit(self, jobs: list[JobRequest]) -> None:
        for job in jobs:
            self.job_count += 1
            deadline_s = None if job.deadline_s is None else self.driver.now + job.deadline_s
            request = replace(job, job_id=f"job{self.job_count}", deadline_s=deadline_s)
            said = self.driver.scheduler.estimate_verdict(request, self.driver.now)
            verdict: Verdict = self.driver.send(JobSubmitted(request))[0].verdict  # type: ignore[union-attr]
            # When it would start is told to who asks, or is refused, or has a deadline.
            told = not verdict.admitted or request.deadline_s is not None
            assert verdict == (said if told else replace(said, wait_s=None))

    @rule(
        stage=st.sampled_from(Stage),
        models=st.sampled_from([("m",), ("n",), MODELS]),
        slots=st.integers(1, 4),
        ready=st.sampled_from([True, True, False]),
        labels=st.sampled_from([{}, {"big": "yes"}]),
        merge_keys=st.sampled_from([(), ("a",), ("a", "b")]),
    )
    def join(
        self,
        stage: Stage,
        models: tuple[str, ...],
        slots: int,
        ready: bool,
        labels: dict[str, str],
        merge_keys: tuple[str, ...],
    ) -> None:
        self.worker_count += 1
        options: dict[str, Any] = {"slots": slots, "ready": ready, "merge_keys": merge_keys, **labels}
        info = worker(f"w{self.worker_count}", stage, models, resident=models[:1], **options)
        self.driver.workers[info.worker_id] = info
        self.driver.send(WorkerSeen(info))

    @precondition(lambda self: self.driver.workers)
    @rule(data=st.data(), ready=st.booleans())
    def change(self, data: st.DataObject, ready: bool) -> None:
        info = self.driver.workers[data.draw(st.sampled_from(sorted(self.driver.workers)))]
        self.driver.workers[info.worker_id] = replace(info, ready=ready, resident=info.models)
        self.driver.send(WorkerSeen(self.driver.workers[info.worker_id]))

    @precondition(lambda self: len(self.driver.workers) > 3)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        worker_id = data.draw(st.sampled_from(sorted(self.driver.workers)))
        del self.driver.workers[worker_id]
        for task in [task for task, place in self.driver.calls.items() if place == worker_id]:
            self.driver.end_call(task)
        self.death_count += 1
        self.driver.send(WorkerLost(worker_id, death=self.death_count))

    @precondition(lambda self: self.death_count)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, self.death_count))
        self.driver.send(WorkerReturned(frozenset({number})))

    @precondition(lambda self: self.driver.calls)
    @rule(data=st.data(), fraction=st.sampled_from([0.25, 0.5, 1.0]), step_s=st.sampled_from([0.0, 0.0, 3.0]))
    def progress(self, data: st.DataObject, fraction: float, step_s: float) -> None:
        self.driver.now += step_s
        actions = self.driver.send(TaskProgressed(self.pick(data, self.driver.running()), fraction))
        assert not actions or step_s

    @precondition(lambda self: self.driver.running(Stage.DENOISE))
    @rule(data=st.data(), step=st.integers(1, 3))
    def save(self, data: st.DataObject, step: int) -> None:
        self.driver.send(TaskSaved(self.pick(data, self.driver.running(Stage.DENOISE)), 0, step))

    @precondition(lambda self: self.driver.running(Stage.DENOISE))
    @rule(data=st.data())
    def latents(self, data: st.DataObject) -> None:
        task = self.pick(data, self.driver.running(Stage.DENOISE))
        if not self.driver.targets[task.job_id]:
            return  # all that it was to make has gone again
        index = data.draw(st.sampled_from(sorted(self.driver.targets[task.job_id])))
        self.driver.jobs[task.job_id].latents.add(index)
        self.driver.send(LatentsReady(task.job_id, index))

    @precondition(lambda self: self.driver.calls)
    @rule(data=st.data(), count=st.integers(1, 6))
    def finish(self, data: st.DataObject, count: int) -> None:
        for _ in range(count):
            if self.driver.calls:
                task = self.pick(data, self.driver.running())
                self.driver.finish(task)
                self.driver.send(TaskFinished(task, 1.0))

    @precondition(lambda self: self.driver.running(Stage.ENCODE))
    @rule()
    def encode(self) -> None:
        """All that wait for it, so that denoisers have much to choose from."""
        while tasks := self.driver.running(Stage.ENCODE):
            self.driver.finish(tasks[0])
            self.driver.send(TaskFinished(tasks[0], 1.0))

    @precondition(lambda self: self.driver.calls)
    @rule(
        data=st.data(),
        retryable=st.sampled_from([True, True, False]),
        counts=st.booleans(),
        awaits_room=st.sampled_from([False, False, True]),
    )
    def fail(self, data: st.DataObject, retryable: bool, counts: bool, awaits_room: bool) -> None:
        task = self.pick(data, self.driver.running())
        self.driver.end_call(task)
        self.driver.send(TaskFailed(task, "STAGE_FAILED", "it broke", retryable, counts, awaits_room))

    @precondition(lambda self: self.driver.running(Stage.DECODE))
    @rule(times=st.integers(1, 5))
    def find_no_room(self, times: int) -> None:
        """No output is stored for a while, so that those that have some there give them back."""
        for _ in range(times):
            for task in self.driver.running(Stage.DECODE):
                if task in self.driver.calls:
                    self.driver.end_call(task)
                    self.driver.send(TaskFailed(task, "STORE_FULL", "", True, False, awaits_room=True))
            self.tick(30.0)

    @precondition(lambda self: self.driver.calls)
    @rule(data=st.data(), stage=st.sampled_from([Stage.DECODE, Stage.DENOISE]), latents=st.booleans())
    def gone(self, data: st.DataObject, stage: Stage, latents: bool) -> None:
        if not self.driver.running(stage):
            return
        task = self.pick(data, self.driver.running(stage))
        job = self.driver.jobs[task.job_id]
        self.driver.end_call(task)
        if task.stage is Stage.DECODE and latents:
            job.latents.discard(task.output_index)
            self.driver.targets.get(task.job_id, set()).discard(task.output_index)
            self.driver.send(ResultGone(task, Stage.DENOISE))
            return
        if task.stage is Stage.DECODE or job.outputs - job.latents - job.decoded:
            job.encoded = False  # a denoise that owes nothing more is done without it; who runs next will say so again
        self.driver.send(ResultGone(task, Stage.ENCODE))

    @precondition(lambda self: self.driver.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.driver.jobs)))
        before = self.driver.jobs[job_id].outcome
        self.driver.send(JobCancelRequested(job_id))
        assert self.driver.jobs[job_id].outcome == (before or "cancelled")

    @precondition(lambda self: self.driver.jobs)
    @rule(data=st.data(), factor=st.sampled_from([0.0, 0.3, 1.0, 2.0, 40.0]))
    def amend(self, data: st.DataObject, factor: float) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.driver.jobs)))
        job, before = self.driver.jobs[job_id], self.driver.scheduler.job(job_id)
        old = job.request
        seconds = replace(old.seconds, denoise_s=old.seconds.denoise_s * factor)
        actions = self.driver.send(JobAmendRequested(replace(old, seconds=seconds)))
        after = self.driver.scheduler.job(job_id)
        if before is None:
            assert actions == []
            return
        assert after is not None
        if isinstance(actions[0], RejectAmendment):
            assert (after.rank, after.remaining_s, after.pool) == (before.rank, before.remaining_s, before.pool)
        else:
            assert after.rank == job.verdict.rank
            grew = seconds.denoise_s >= old.seconds.denoise_s
            assert grew == (after.remaining_s >= before.remaining_s) or after.remaining_s == before.remaining_s

    @precondition(lambda self: self.driver.jobs)
    @rule(data=st.data(), stage=st.sampled_from(Stage))
    def report_late(self, data: st.DataObject, stage: Stage) -> None:
        """Of tasks that do not run, or of jobs that are over."""
        task = Task(data.draw(st.sampled_from(sorted(self.driver.jobs))), stage, 0)
        if task not in self.driver.calls:
            failed = TaskFailed(task, "STAGE_FAILED", "", retryable=False, counts=True)
            late: list[Event] = [
                TaskProgressed(task, 1.0),
                TaskSaved(task, 0, 1),
                TaskFinished(task, 1.0),
                failed,
                ResultGone(task, Stage.ENCODE),
            ]
            for event in late:
                assert self.driver.send(event) == []

    @rule(step_s=st.sampled_from([0.0, 0.5, 3.0, 60.0]))
    def tick(self, step_s: float) -> None:
        self.driver.now += step_s
        self.driver.send(Ticked())

    @rule(ahead_jobs=st.sampled_from([0, 1, None]))
    def bound_encodes(self, ahead_jobs: int | None) -> None:
        self.driver.ahead_jobs = ahead_jobs
        self.driver.send(EncodesBounded(ahead_jobs))

    @rule(config=configs)
    def reload(self, config: SchedulerConfig) -> None:
        self.driver.config = config
        self.driver.send(ConfigReloaded(config))

    @rule()
    def restart(self) -> None:
        self.driver.restart()

    @invariant()
    def nothing_is_left_undone(self) -> None:
        """A reload of the same makes the scheduler look at everything, due or not."""
        if hasattr(self, "driver"):
            assert self.driver.send(ConfigReloaded(self.driver.config)) == []

    @invariant()
    def no_accepted_job_is_lost(self) -> None:
        for job_id, job in self.driver.jobs.items() if hasattr(self, "driver") else ():
            assert (self.driver.scheduler.job(job_id) is None) == bool(job.outcome)

    @invariant()
    def no_rank_is_better_than_its_arrival_and_kappa_allow(self) -> None:
        """With `ModelDriver.check_order`: a job is overtaken within κ × the difference of the estimates, no longer."""
        for config, jobs in self.driver.accepted if hasattr(self, "driver") else ():
            if config.policy == "stretch":
                for job in [job for job in jobs if not job.amended]:
                    assert job.verdict.rank >= job.arrival_s + config.kappa * job.request.seconds.total_s - 1e-9

    @invariant()
    def the_backlog_is_the_sum_of_its_parts(self) -> None:
        """What a pool's worst-ranked job would find ahead is what is unrun of each of its jobs."""
        if not hasattr(self, "driver"):
            return
        scheduler = self.driver.scheduler
        views = [view for job_id in self.driver.jobs if (view := scheduler.job(job_id)) is not None]
        for pool in scheduler.pools():
            remaining_s = sum(view.denoise_s for view in views if view.pool == pool.name)
            assert pool.backlog_s * max(1, pool.workers) == pytest.approx(remaining_s, rel=1e-9, abs=1e-9)

    @precondition(lambda self: self.driver.workers)
    @rule(model=st.sampled_from(MODELS))
    def accept_a_long_job(self, model: str) -> None:
        """One that is accepted adds no work ahead of a shorter one of another tenant.

        It counts as an arrival, so the room that a shorter job finds may be another one; where it is the same, the
        shorter job is still admitted.
        """
        scheduler, now = self.driver.scheduler, self.driver.now
        probes = [JobRequest(f"probe{s}", "cid", model, "standard", StageSeconds(0.0, s, 0.0)) for s in (0.5, 2.0, 6.0)]
        before = [scheduler.estimate_verdict(probe, now) for probe in probes]
        self.job_count += 1
        long = JobRequest(f"job{self.job_count}", "dan", model, "standard", StageSeconds(0.0, 29.0, 0.0))
        self.driver.send(JobSubmitted(long))
        for probe, was in zip(probes, before, strict=True):
            verdict = scheduler.estimate_verdict(probe, now)
            if was.admitted and verdict.reason == "OVERLOADED" and verdict.limit_s == was.limit_s:
                assert verdict.rank >= self.driver.jobs[long.job_id].verdict.rank

    @invariant()
    def the_longest_go_first(self) -> None:
        if not hasattr(self, "driver"):
            return
        for model in MODELS:
            refused: dict[str, Verdict] = {}
            for size in (0.0, 0.25, 1.0, 4.0, 9.0, 30.0, 200.0, 4000.0):
                probe = JobRequest("probe", "ann", model, "standard", StageSeconds(size / 8, size, size / 4))
                verdict = self.driver.scheduler.estimate_verdict(probe, self.driver.now)
                assert not (verdict.admitted and verdict.pool in refused), (size, verdict, refused[verdict.pool])
                if not verdict.admitted:
                    refused[verdict.pool] = verdict

    def teardown(self) -> None:
        """With failures at an end and workers for everything, every accepted job comes to its end."""
        if not hasattr(self, "driver"):
            return
        driver = self.driver
        self.bound_encodes(None)
        for stage in Stage:
            info = worker(f"good-{stage.value}", stage, MODELS, slots=2)
            driver.workers[info.worker_id] = info
            driver.send(WorkerSeen(info))
        for _ in range(20 * (1 + len(driver.jobs))):
            for task in driver.running():
                if task in driver.calls:
                    driver.finish(task)
                    driver.send(TaskFinished(task, 1.0))
            driver.now += 30.0
            driver.send(Ticked())
        assert all(job.outcome for job in driver.jobs.values())
        assert driver.scheduler.next_tick_s() is None
        driver.replay()


SchedulerMachine.TestCase.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestSchedulerMachine = SchedulerMachine.TestCase
