"""A readable way to tell what happens to a scheduler and what it answers."""

from services.router.core.actions import Action, StartTask
from services.router.core.config import SchedulerConfig
from services.router.core.events import Event, WorkerSeen
from services.router.core.job import Stage, Task, WorkerInfo
from services.router.core.scheduler import Scheduler
from tests.scenarios.invariants import check


def encode(job_id: str) -> Task:
    return Task(job_id, Stage.ENCODE)


def denoise(job_id: str) -> Task:
    return Task(job_id, Stage.DENOISE)


def decode(job_id: str, output_index: int = 0) -> Task:
    return Task(job_id, Stage.DECODE, output_index)


def start(task: Task, worker_id: str) -> tuple[Task, str]:
    """A `StartTask` by what matters: what, and where."""
    return (task, worker_id)


class Story:
    """Tells events to a scheduler. Starts are compared by task and worker, all other actions whole."""

    def __init__(self, config: SchedulerConfig, *workers: WorkerInfo) -> None:
        self.scheduler = Scheduler(config)
        self.started: list[StartTask] = []
        for info in workers:
            self.scheduler.handle(WorkerSeen(info), 0.0)

    def tell(self, now: float, event: Event) -> list[Action]:
        """The actions that follow."""
        actions = self.scheduler.handle(event, now)
        check(self.scheduler)
        self.started += [action for action in actions if isinstance(action, StartTask)]
        return actions

    def at(self, now: float, event: Event, *expected: Action | tuple[Task, str]) -> None:
        """Expect exactly these actions; that a job was admitted need not be said."""
        actions = [action for action in self.tell(now, event) if type(action).__name__ != "AdmitJob"]
        found = [(a.task, a.worker_id) if isinstance(a, StartTask) else a for a in actions]
        assert found == list(expected)
