"""What clients may see of models, workers and pools."""

from math import inf
from time import monotonic

from services.router.access.principal import Principal
from services.router.core import actions
from services.router.core.job import Stage
from services.router.core.scheduler import Scheduler
from services.router.core.views import PoolView, WorkerView
from services.router.estimates import estimate_error
from services.router.intake.appraiser import Priced
from services.router.intake.canvas import side_multiple
from services.router.jobs import JobTable
from services.router.pricing import Pricing, estimate_message
from services.router.reads.decisions import verdict_message
from services.router.stages import TO_PROTO
from services.router.workers.fleet import Fleet
from services.router.workers.known_worker import KnownWorker
from triptych.catalog import Catalog, CatalogModel
from triptych.durations import duration_of
from triptych.v1.job_pb2 import JobSpec, TextReading
from triptych.v1.router_service_pb2 import (
    EstimateError,
    EstimateJobResponse,
    GetFleetResponse,
    Limits,
    ListModelsResponse,
    Model,
    ModelRefusal,
    Pool,
    Worker,
)
from triptych.v1.worker_pb2 import ActiveJob, MediaKind, WorkerState


def models(catalog: Catalog, fleet: Fleet) -> ListModelsResponse:
    """The catalog, and what of it is served now."""
    return ListModelsResponse(models=[_model(name, model, fleet) for name, model in sorted(catalog.models.items())])


def fleet_view(
    fleet: Fleet, scheduler: Scheduler, pricing: Pricing, epoch: int, jobs: JobTable, who: Principal
) -> GetFleetResponse:
    """Workers and pools as the scheduler has them, and how good its estimates are.

    How busy everything is, everyone may know. Only admins learn where workers can be reached; and of the jobs of others
    the rest learn that each is there.
    """
    seen = {view.worker_id: view for view in scheduler.workers()}
    return GetFleetResponse(
        epoch=epoch,
        workers=[_worker(known, seen.get(known.worker_id), jobs, who) for known in fleet],
        pools=[_pool(pool) for pool in scheduler.pools()],
        estimate_errors=[_error(*kind, error) for kind, error in pricing.errors().items()],
    )


def may_see(job_id: str, jobs: JobTable, who: Principal) -> bool:
    job = jobs.get(job_id)
    return who.is_admin or (job is not None and who.may_see(job.tenant))


def estimate_view(priced: Priced, verdict: actions.Verdict, cut: list[TextReading]) -> EstimateJobResponse:
    """Return a price, the size that it is for, admission's verdict, and the texts that are too long."""
    return EstimateJobResponse(
        estimate=estimate_message(priced.estimate),
        verdict=verdict_message(verdict),
        width=priced.spec.width,
        height=priced.spec.height,
        cut_texts=cut,
    )


def _worker(known: KnownWorker, view: WorkerView | None, jobs: JobTable, who: Principal) -> Worker:
    beat = known.heartbeat
    return Worker(
        worker_id=beat.worker_id,
        stage=beat.stage,
        address=beat.address if who.is_admin else "",
        state=WorkerState.WORKER_STATE_DRAINING if known.shunned else beat.state,
        device=beat.device,
        pool=view.pool if view else "",
        models=sorted(model.profile.name for model in beat.models),
        active_jobs=[active if may_see(active.job_id, jobs, who) else ActiveJob() for active in beat.active_jobs],
        backlog=duration_of(view.remaining_s if view else 0.0),
        heartbeat_age=duration_of(monotonic() - known.heard_s),
        cache=beat.cache if beat.HasField("cache") else None,
        version=beat.version,
        pace=view.slowdown if view else 1.0,
        refused_models=beat.refused_models,
    )


def _pool(pool: PoolView) -> Pool:
    return Pool(
        name=pool.name,
        queued_count=pool.queued,
        running_count=pool.running,
        backlog=duration_of(pool.backlog_s),
        max_backlog=None if pool.max_backlog_s in (None, inf) else duration_of(pool.max_backlog_s),
        worker_count=pool.workers,
        borrowable_count=pool.borrowable,
    )


def _error(model: str, stage: Stage, device: str, error: estimate_error.EstimateError) -> EstimateError:
    return EstimateError(
        model=model,
        stage=TO_PROTO[stage],
        device=device,
        sample_count=error.sample_count,
        median_error=duration_of(error.median_s),
        median_relative_error=error.median_relative,
        bias=error.bias,
    )


def _model(name: str, model: CatalogModel, fleet: Fleet) -> Model:
    served = {known.info().stage for known in fleet if known.info().ready and name in known.info().models}
    defaults, limits, profile = model.defaults, model.limits, fleet.profile(name)
    is_video = model.media_kind == "video"
    view = Model(
        name=name,
        description=model.description,
        media_kind=MediaKind.MEDIA_KIND_VIDEO if is_video else MediaKind.MEDIA_KIND_IMAGE,
        served_stages=sorted(TO_PROTO[stage] for stage in served),
        defaults=JobSpec(
            model=name,
            step_count=defaults.step_count,
            guidance=defaults.guidance,
            width=defaults.width,
            height=defaults.height,
            output_count=1,
        ),
        limits=Limits(
            min_side=limits.min_side,
            max_side=limits.max_side,
            max_pixels=limits.max_pixels,
            max_step_count=limits.max_step_count,
            max_frame_count=limits.max_frame_count,
            max_output_count=limits.max_output_count,
            max_prompt_bytes=limits.max_prompt_bytes,
            side_multiple=side_multiple(profile) if profile is not None else 0,
        ),
        profile=profile,
        refusals=[
            ModelRefusal(stage=TO_PROTO[each.stage], worker_id=each.worker_id, reason=each.reason)
            for each in fleet.refusals(name)
        ],
    )
    if is_video:
        view.defaults.frame_count = defaults.frame_count
        view.defaults.fps = defaults.fps
    return view
