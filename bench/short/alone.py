"""The same job alone: nothing else on the device, amended at the very step at which it was amended among the others."""

from dataclasses import dataclass

import torch

from bench.denoiser import BenchDenoiser
from bench.long_model import spec_of
from services.denoiser.amendments import Amendments
from services.denoiser.denoise_work import LATENTS, DenoiseWork
from services.denoiser.step_seam import CapturedState
from services.stage.tensors import from_bundle
from triptych.v1.job_pb2 import Amendment, JobSpec

CPU = torch.device("cpu")
SIDE = 64


@dataclass(frozen=True)
class Taken:
    """A job's steps from `step` on (1 is the first) were of `step_count` in all; ended with that step if it is one."""

    step: int
    step_count: int


@dataclass(frozen=True)
class Course:
    """All that a job's latents depend on, merging left aside. `taken` is None if it was not amended."""

    model: str
    seed: int
    step_count: int
    taken: Taken | None = None

    def spec(self, *, reproducible: bool = True) -> JobSpec:
        spec = spec_of(self.model, self.step_count, self.seed)
        spec.width = spec.height = SIDE
        spec.reproducible = reproducible
        return spec


class Alone:
    """Runs courses on the bench's device while nothing else is on, each once. Those not amended are kept for good."""

    def __init__(self, bench: BenchDenoiser) -> None:
        self._bench = bench
        self._latents: dict[Course, torch.Tensor] = {}

    async def latents(self, course: Course) -> torch.Tensor:
        if course not in self._latents:
            self._latents[course] = await self._run(course)
        return self._latents[course]

    async def changed(self) -> list[Course]:
        """Those not amended that come out otherwise now than they did first: what ran in between has left a mark."""
        plain = [(course, latents) for course, latents in self._latents.items() if course.taken is None]
        return [course for course, latents in plain if not torch.equal(latents, await self._run(course))]

    def forget(self) -> None:
        """Forget the amended ones, of which there are many."""
        self._latents = {course: latents for course, latents in self._latents.items() if course.taken is None}

    async def _run(self, course: Course) -> torch.Tensor:
        host = self._bench.host
        model = self._bench.server.models.get(course.model)
        conditioning = [await host.exchange.get(entry.data) for entry in self._bench.encoded[course.model]]
        amendments = Amendments(course.step_count)
        observer = _AmendsOnce(amendments, course.taken)
        work = DenoiseWork(model, course.spec(), 0, conditioning, observer, amendments)
        denoised = await host.thread.run((0.0, ""), lambda: work.run(host.thread))
        made: torch.Tensor = from_bundle(denoised.latents, CPU)[LATENTS][0]
        return made


@dataclass
class _AmendsOnce:
    """An observer that changes the step count right before the step from which on another one was seen."""

    amendments: Amendments
    taken: Taken | None
    _done: int = 0

    def before_step(self) -> None:
        if self.taken is not None and self._done == self.taken.step - 1:
            self.amendments.amend(Amendment(step_count=self.taken.step_count))

    def after_step(self, step: int, step_count: int) -> None:
        self._done = step

    def checkpoint_due(self) -> bool:
        return False

    def captured(self, step: int, state: CapturedState) -> None:
        raise AssertionError("nobody asked for a checkpoint")

    def restart_only(self, reason: str) -> None:
        """No checkpoint is wanted anyway."""
