"""The end of a task, and what follows for its job: on to the next stage, another try, or the end of the job."""

from collections.abc import Set

from services.router.core.actions import Action, FinishJob, GiveBack, RequeueJob, StopTask
from services.router.core.config import SchedulerConfig
from services.router.core.events import TaskFailed
from services.router.core.job import Stage, Task
from services.router.core.jobs import Attempts, Death, Job, JobTable
from services.router.core.placement import Placement
from services.router.core.store_deadlock import StoreDeadlock
from services.router.core.workers import Workers

# The reason that is given when a stage's result is lost.
_GONE = {Stage.ENCODE: "CONDITIONING_GONE", Stage.DENOISE: "LATENTS_GONE"}


class Lifecycle:
    """Changes the facts of jobs. Methods take a task that runs, and return the actions that follow."""

    def __init__(
        self,
        config: SchedulerConfig,
        table: JobTable,
        workers: Workers,
        placement: Placement,
        deadlock: StoreDeadlock,
    ) -> None:
        self._config = config
        self._table = table
        self._workers = workers
        self._placement = placement
        self._deadlock = deadlock

    def finish(self, job: Job, task: Task) -> list[Action]:
        """The task's result is durable."""
        targets = job.calls[task].targets
        self._workers.take(job, task)
        self._deadlock.leave(task)
        match task.stage:
            case Stage.ENCODE:
                job.encoded = True
            case Stage.DENOISE:
                job.latents |= targets
            case Stage.DECODE:
                job.outputs.add(task.output_index)
        actions: list[Action] = []
        if task.stage is Stage.DENOISE and job.missing:  # latents that it did not owe are gone
            actions.append(RequeueJob(job.job_id, job.attempt, "LATENTS_GONE", Stage.DENOISE))
        return actions + self._go_on(job)

    def add_latents(self, job: Job, output_index: int) -> None:
        """One output of the running denoise is durable."""
        if output_index in job.calls[job.denoise].targets:
            job.latents.add(output_index)
            self._deadlock.leave(job.denoise)
            self._table.refresh(job)

    def save(self, job: Job, task: Task, place: tuple[int, int]) -> None:
        """A new checkpoint resets the count of failures.

        Checkpoints only advance, so a job that keeps killing its workers still fails after `max_attempts`.
        """
        if place > job.saved:
            job.saved = place
            attempts = job.attempts.get(task)
            if attempts is not None:
                attempts.failures = 0
                if attempts.deaths:
                    attempts.deaths = ()
                    self._workers.settle(job, task)

    def fail(self, job: Job, task: Task, event: TaskFailed, now: float) -> list[Action]:
        """The task ended without a result: try it again, at once or after a while, unless in vain.

        If a store was full it is tried until there is room: an accepted job is not lost to that. If need be another job
        makes some.
        """
        self._workers.take(job, task)
        if task.stage is Stage.DENOISE and not job.missing:
            return self._go_on(job)
        if not event.retryable:
            return self.end(job, "failed", event.reason, event.blame)
        if event.awaits_room:
            refusals = self._deadlock.refuse(self._config, job, task, now)
            giver = self._deadlock.giver(self._config, task, now)
            again = self._again(job, task, event.reason, now, self._config.backoff(1 if giver else refusals))
            return again + self._give_back(giver, task) if giver else again
        self._deadlock.leave(task)
        attempts = job.attempts.setdefault(task, Attempts())
        attempts.failures += event.counts
        attempts.setbacks += not event.counts
        if attempts.failures >= self._config.max_attempts or attempts.setbacks > self._config.max_setbacks:
            tries = attempts.failures + attempts.setbacks
            why = f"{task.stage.value} ended {tries} times without a result, last: {event.reason} {event.blame}"
            return self.end(job, "failed", "TOO_MANY_ATTEMPTS", why.rstrip())
        # The first setback is no reason to wait: a worker drained, another takes over.
        delay_s = self._config.backoff(attempts.failures if event.counts else attempts.setbacks - 1)
        return self._again(job, task, event.reason, now, delay_s)

    def lose_worker(self, job: Job, task: Task, death: Death, now: float) -> list[Action]:
        """The task's worker died under it. From now on the task runs alone, until it gets further than ever before.

        A task that has used up its attempts waits a while before the job ends: the worker may come back.
        """
        attempts = job.attempts.setdefault(task, Attempts())
        attempts.deaths += (death,)
        attempts.failures += death.failures
        if task.stage is Stage.DENOISE and not job.missing:
            return self._go_on(job)
        grace_s = self._config.return_grace_s if self._is_used_up(job, task) else 0.0
        if self._is_used_up(job, task) and not (death.number and grace_s):
            return self._end_used_up(job, task)
        return self._again(job, task, "WORKER_LOST", now, grace_s)

    def release(self, now: float) -> list[Action]:
        """Let tasks start whose pause is over, and end the jobs of those whose attempts are used up by then."""
        actions: list[Action] = []
        for job, task in self._table.release(now):
            if self._is_used_up(job, task) and job.job_id in self._table.jobs:
                actions += self._end_used_up(job, task)
        return actions

    def refute(self, numbers: Set[int]) -> None:
        """What was taken for these deaths of workers was none: no task is charged with them."""
        for job in self._table.jobs.values():
            for task, attempts in job.attempts.items():
                refuted = [death for death in attempts.deaths if death.number in numbers]
                if refuted:
                    was_used_up = self._is_used_up(job, task)
                    attempts.failures = max(0, attempts.failures - sum(death.failures for death in refuted))
                    attempts.deaths = tuple(death for death in attempts.deaths if death not in refuted)
                    if was_used_up and not self._is_used_up(job, task):
                        job.held_until.pop(task, None)
                    self._workers.settle(job, task)
                    self._table.changed.add(task.stage)
                    self._table.refresh(job)

    def _is_used_up(self, job: Job, task: Task) -> bool:
        attempts = job.attempts.get(task)
        return attempts is not None and attempts.failures >= self._config.max_attempts

    def _end_used_up(self, job: Job, task: Task) -> list[Action]:
        attempts = job.attempts[task]
        worker_id = attempts.deaths[-1].worker_id
        why = f"{task.stage.value} failed {attempts.failures} times; the last time worker {worker_id} was lost"
        return self.end(job, "failed", "TOO_MANY_ATTEMPTS", why)

    def lose_input(self, job: Job, task: Task, made_by: Stage) -> list[Action]:
        """The task has missed a result of an earlier stage: that stage makes it again."""
        self._workers.take(job, task)
        # Conditioning is missed by one task after the other; it is made again once for all of them.
        job.reruns += made_by is Stage.DENOISE or job.encoded
        if job.reruns > self._config.max_reruns:
            blame = f"the input of {task.stage.value} was gone {job.reruns} times"
            return self.end(job, "failed", _GONE[made_by], blame)
        if made_by is Stage.ENCODE:
            if task.stage is Stage.DENOISE and not job.missing:
                return self._go_on(job)
            job.encoded = False
            # To watchers the decode alone is put back: latents that are there stay.
            stage = Stage.ENCODE if task.stage is Stage.DENOISE else Stage.DECODE
            self._table.refresh(job)
            return [RequeueJob(job.job_id, job.attempt, _GONE[Stage.ENCODE], stage)]
        job.latents.discard(task.output_index)
        denoise = job.calls.get(job.denoise)
        if denoise is not None:  # it has other outputs to make; this one is made in the next run
            denoise.targets -= {task.output_index}
        self._table.refresh(job)
        return [] if denoise else [RequeueJob(job.job_id, job.attempt, _GONE[Stage.DENOISE], Stage.DENOISE)]

    def end(self, job: Job, outcome: str, reason: str = "", blame: str = "") -> list[Action]:
        """The job is over; stop its tasks that run."""
        order = list(Stage)
        running = sorted(job.calls, key=lambda task: (order.index(task.stage), task.output_index))
        actions: list[Action] = [StopTask(task, job.calls[task].worker_id) for task in running]
        for task in running:
            self._workers.take(job, task)
        for task in (job.encode, job.denoise, *(Task(job.job_id, Stage.DECODE, i) for i in job.request.outputs)):
            self._deadlock.leave(task)
        self._table.remove(job)
        return [*actions, FinishJob(job.job_id, outcome, reason, blame)]

    def _go_on(self, job: Job) -> list[Action]:
        """End the job if nothing is left to do of it."""
        if job.complete:
            return self.end(job, "succeeded")
        self._table.refresh(job)
        return []

    def _again(self, job: Job, task: Task, reason: str, now: float, delay_s: float) -> list[Action]:
        if delay_s > 0:
            self._table.hold(job, task, now + delay_s)
        self._table.refresh(job)
        return [RequeueJob(job.job_id, job.attempt, reason, task.stage)]

    def _give_back(self, job: Job, taker: Task) -> list[Action]:
        """Give up what the taker's stage has made of the job; it is made again later."""
        actions: list[Action] = []
        stage, outputs = taker.stage, frozenset[int]()
        if stage is Stage.DECODE:
            outputs = frozenset(job.outputs)
            job.outputs.clear()
        else:
            job.latents.clear()
            job.saved, job.refines = (0, 0), False
            decoding = [task for task in job.calls if task.stage is Stage.DECODE]
            actions += [self._placement.evict(job, task, "made room") for task in decoding]
        self._table.refresh(job)
        return [*actions, GiveBack(job.job_id, job.attempt, stage, taker.job_id, outputs)]
