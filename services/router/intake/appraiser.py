"""What a client asks for, as it would be run, and its price."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from services.router.clock import Clock
from services.router.core.job import JobRequest
from services.router.estimates.estimator import Estimate
from services.router.intake.refusal import NO_WORKER_RETRY_S, unavailable
from services.router.intake.validation import complete_spec, with_deadline
from services.router.jobs import job_request
from services.router.pricing import Pricing
from services.router.workers.fleet import Fleet
from triptych.catalog import Catalog, CatalogModel
from triptych.errors import Reason, TriptychError, Violation, invalid
from triptych.v1.job_pb2 import JobSpec
from triptych.v1.worker_pb2 import ModelProfile

# By then every worker has been heard.
_HEARTBEATS_S = 1.5


@dataclass(frozen=True, slots=True)
class Priced:
    """A job as it would be run: its complete spec and its price."""

    spec: JobSpec
    estimate: Estimate

    def request(self, job_id: str, tenant: str) -> JobRequest:
        """As the scheduler sees it."""
        return job_request(job_id, tenant, self.spec, self.estimate.seconds)


class Appraiser:
    """Completes, checks and prices specs, by what the catalog and the workers say of their models."""

    def __init__(self, catalog: Catalog, pricing: Pricing, fleet: Fleet, clock: Clock) -> None:
        self._began_s = time.monotonic()
        self._catalog = catalog
        self._pricing = pricing
        self._fleet = fleet
        self._clock = clock
        # One job's images at a time: one of 64 million pixels takes a quarter of a gigabyte.
        self._readers = ThreadPoolExecutor(1, thread_name_prefix="images")

    async def appraise(self, spec: JobSpec) -> Priced:
        """Raises INVALID_FIELD, MODEL_UNKNOWN, MODEL_UNAVAILABLE, NOT_READY, NO_WORKER."""
        model = self._model(spec.model)
        spec = with_deadline(spec, self._clock.now_s())
        profile = self._profile(spec.model)
        if spec.attachments:
            reading = partial(complete_spec, spec, model, profile)
            full = await asyncio.get_running_loop().run_in_executor(self._readers, reading)
        else:
            full = complete_spec(spec, model, profile)
        return Priced(full, self._pricing.price(full, self._fleet.serving(full.model)))

    def appraise_tail(self, spec: JobSpec, done: int) -> Priced:
        """A complete spec of which `done` steps have been run. Raises MODEL_UNAVAILABLE, NOT_READY, NO_WORKER."""
        self._profile(spec.model)
        return Priced(spec, self._pricing.tail(spec, done, self._fleet.serving(spec.model)))

    def check_heard(self) -> None:
        """Raises NOT_READY while a worker that is missed may only not have been heard yet."""
        if time.monotonic() < self._began_s + _HEARTBEATS_S:
            raise TriptychError(Reason.NOT_READY, "The router has just begun to lead.", retry_after_s=_HEARTBEATS_S)

    def _model(self, name: str) -> CatalogModel:
        if not name:
            raise invalid(Violation("spec.model", "must be named; ListModels tells which there are"))
        model = self._catalog.models.get(name)
        if model is None:
            why = f"no model is called {name[:64]!r}; there are {', '.join(self._catalog.models)}"
            raise TriptychError(Reason.MODEL_UNKNOWN, f"spec.model: {why}", violations=[Violation("spec.model", why)])
        return model

    def _profile(self, model: str) -> ModelProfile:
        if barring := self._fleet.barring(model):
            self.check_heard()
            raise unavailable(model, barring)
        profile = self._fleet.profile(model)
        if profile is None:
            self.check_heard()
            raise TriptychError(
                Reason.NO_WORKER,
                f"No worker serves {model} yet: start one for each stage.",
                retry_after_s=NO_WORKER_RETRY_S,
            )
        return profile
