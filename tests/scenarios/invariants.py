"""What must hold between any two events: everything that is kept follows from the facts of the jobs."""

from math import isclose

from services.router.core.job import Stage
from services.router.core.jobs import Job
from services.router.core.scheduler import Scheduler


def check(scheduler: Scheduler) -> None:
    """Raise `AssertionError`, with the job, queue or worker at fault, if the state contradicts itself."""
    table = scheduler.table
    for job in table.jobs.values():
        _check_job(scheduler, job)
    for key, queue in table.queues.items():
        jobs = [job for job in table.jobs.values() if (job.pool, job.request.model) == key]
        assert queue.waiting == sorted(job.key for job in jobs if job.missing and job.denoise not in job.calls), key
        for stage in Stage:
            ready = [(j.rank, j.job_id, t.output_index) for j in jobs for t in j.startable(table.now)]
            stages = [t.stage for j in jobs for t in j.startable(table.now)]
            expected = sorted(place for place, of in zip(ready, stages, strict=True) if of is stage)
            assert queue.ready[stage] == expected, (key, stage)
        assert len(queue.backlog) == len(jobs) > 0, key
        assert _close(queue.backlog.total(), jobs), key
    for name, tenant in table.tenants.items():
        jobs = [job for job in table.jobs.values() if job.request.tenant == name]
        assert len(tenant.backlog) == len(jobs) == sum(map(len, tenant.similar.values())) > 0, name
    _check_workers(scheduler)


def _check_job(scheduler: Scheduler, job: Job) -> None:
    config = scheduler.config
    assert not job.complete, job.job_id
    assert job.reruns <= config.max_reruns, job.job_id
    # A task whose last attempt a death has used up waits whether that was one.
    assert all(each.failures < config.max_attempts or each.deaths for each in job.attempts.values()), job.job_id
    assert all(each.setbacks <= config.max_setbacks for each in job.attempts.values()), job.job_id
    assert all(0.0 <= call.fraction <= 1.0 for call in job.calls.values()), job.job_id
    assert job.latents | job.outputs <= job.request.outputs, job.job_id
    for task in job.calls:
        assert task.stage is not Stage.DECODE or task.output_index in job.latents - job.outputs, task


def _check_workers(scheduler: Scheduler) -> None:
    running = {(task, call.worker_id) for job in scheduler.table.jobs.values() for task, call in job.calls.items()}
    placed = {(task, worker.worker_id) for worker in scheduler.fleet.by_id.values() for task in worker.running}
    assert running == placed
    for worker in scheduler.fleet.by_id.values():
        assert all(task.stage is worker.info.stage for task in worker.running), worker.worker_id
        was = (worker.open, worker.front)
        worker.settle()
        assert (worker.open, worker.front) == was, worker.worker_id
        suspects = sum(job.is_suspect(task) for task, job in worker.running.items())
        assert not suspects or len(worker.running) == 1, worker.worker_id


def _close(total: tuple[float, ...], jobs: list[Job]) -> bool:
    sums = [sum(job.remaining_s[stage] for job in jobs) for stage in range(3)]
    return all(isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) for a, b in zip(total, sums, strict=True))
