"""What must hold between any two events. For tests: it looks at everything."""

from math import isclose

from services.router.core.book import Book
from services.router.core.config import SchedulerConfig
from services.router.core.fleet import Fleet
from services.router.core.job import Stage
from services.router.core.lane import Lane
from services.router.core.policy import POLICIES
from services.router.core.record import JobRecord, Seconds
from services.router.core.task import TaskState


def check(config: SchedulerConfig, book: Book, fleet: Fleet) -> None:
    """Raise `AssertionError`, with the job, lane or worker at fault, if the state contradicts itself."""
    for job in book.jobs.values():
        _check_job(config, job)
    for lane in book.lanes.values():
        _check_lane(lane, [job for job in book.jobs.values() if job.lane is lane])
    for name, tenant in book.tenants.items():
        jobs = [job for job in book.jobs.values() if job.request.tenant == name]
        assert tenant.job_count == len(jobs) > 0, name
        if POLICIES[config.policy].rank == "stretch":
            assert len(tenant.ledger) == len(jobs), name
            assert _close(tenant.ledger.total(), (sum(_unrun(jobs)),)), name
            assert sum(len(peers) for peers in tenant.peers.values()) == len(jobs), name
    for stage in Stage:
        assert book.ready[stage] == sum(len(lane.startable[stage]) for lane in book.lanes.values()), stage
    _check_workers(book, fleet)


def _check_job(config: SchedulerConfig, job: JobRecord) -> None:
    states = {record.task: record.state for record in job.tasks}
    assert not job.complete, job.job_id
    assert job.reruns <= config.max_reruns, job.job_id
    # Who has lost its last attempt by a death waits whether that was one.
    assert all(record.failures < config.max_attempts or record.suspect for record in job.tasks), job.job_id
    assert all(record.setbacks <= config.max_setbacks for record in job.tasks), job.job_id
    assert all(0.0 <= record.fraction <= 1.0 and 0.0 <= record.share <= 1.0 for record in job.tasks), job.job_id
    # A task has its input or waits for it.
    assert job.encode.state is not TaskState.PENDING, states
    under_way = (TaskState.RUNNING, TaskState.DONE)
    assert job.denoise.state in under_way or (job.denoise.state is TaskState.PENDING) == (not job.encoded), states
    assert job.denoise.state is not TaskState.DONE or job.all_covered, states
    for index, decode in enumerate(job.decodes):
        if decode.state is not TaskState.DONE:
            ready = index in job.latents and (job.encoded or decode.state is TaskState.RUNNING)
            assert (decode.state is TaskState.PENDING) == (not ready), states


def _check_lane(lane: Lane, jobs: list[JobRecord]) -> None:
    assert lane.job_count == len(jobs) == len(lane.ledger) > 0, lane.key
    assert list(lane.queued) == sorted(job.key for job in jobs if job.queued), lane.key
    for stage in Stage:
        ready = [
            (job.rank, job.job_id, record.task.output_index)
            for job in jobs
            for record in job.tasks
            if record.task.stage is stage and record.state is TaskState.READY
        ]
        assert list(lane.startable[stage]) == sorted(ready), (lane.key, stage)
    assert lane.denoising == sum(job.denoise.state is TaskState.RUNNING for job in jobs), lane.key
    assert _close(lane.ledger.total(), _unrun(jobs)), lane.key


def _check_workers(book: Book, fleet: Fleet) -> None:
    placed = [record for worker in fleet.workers.values() for record in worker.running.values()]
    running = [r for job in book.jobs.values() for r in job.tasks if r.state is TaskState.RUNNING]
    assert {id(record) for record in placed} == {id(record) for record in running}
    assert len(placed) == len(running), "a task runs twice"
    for worker in fleet.workers.values():
        assert all(r.worker_id == worker.worker_id for r in worker.running.values()), worker.worker_id
        assert all(r.task.stage is worker.info.stage for r in worker.running.values()), worker.worker_id
        assert (worker.cohort is not None) == worker.info.ready, worker.worker_id
        if worker.cohort is not None:
            assert worker.shelf is not None
            assert worker.place in worker.shelf, worker.worker_id
            cohort = worker.cohort
            assert worker.shelf is (cohort.idle if worker.idle else cohort.full if worker.full else cohort.roomy)
            assert worker.place[0] == (
                worker.pace.step
                if worker.idle
                else worker.slot_free_s
                if worker.full
                else worker.front
                if worker.info.stage is Stage.DENOISE
                else worker.load_s
            ), worker.worker_id
            lending_place = (worker.own_front, worker.worker_id) if worker.guests else None
            assert worker.lending_place == lending_place, worker.worker_id
            assert worker.lending_place in (*cohort.lending, None)
        assert worker.company == (worker.joinable if worker.info.stage is Stage.DENOISE else frozenset())
        assert all(worker.worker_id in fleet.company[key] for key in worker.company), worker.worker_id
        suspects = sum(record.suspect for record in worker.running.values())
        assert not suspects or len(worker.running) == 1, worker.worker_id


def _unrun(jobs: list[JobRecord]) -> Seconds:
    parts = [job.unrun for job in jobs]
    return (sum(part[0] for part in parts), sum(part[1] for part in parts), sum(part[2] for part in parts))


def _close(these: tuple[float, ...], those: tuple[float, ...]) -> bool:
    return all(isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) for a, b in zip(these, those, strict=True))
