"""Workers and jobs to put on the simulator's virtual clock, or into a story."""

from collections.abc import Iterable

from services.router.core.job import JobRequest, Stage, StageSeconds, WorkerInfo
from services.router.simulate.clock import VirtualClock

__all__ = ["VirtualClock", "request", "worker"]


def worker(
    worker_id: str,
    stage: Stage,
    models: Iterable[str] = ("m",),
    *,
    slots: int = 1,
    ready: bool = True,
    resident: Iterable[str] | None = None,
    merge_keys: Iterable[str] = (),
    **labels: str,
) -> WorkerInfo:
    """A worker with all of its models resident unless said otherwise."""
    known = frozenset(models)
    hot = known if resident is None else frozenset(resident)
    return WorkerInfo(worker_id, stage, known, hot, slots, ready, tuple(sorted(labels.items())), frozenset(merge_keys))


def request(
    job_id: str,
    denoise_s: float,
    *,
    model: str = "m",
    tenant: str = "t",
    priority_class: str = "standard",
    encode_s: float = 0.0,
    decode_s: float = 0.0,
    outputs: int = 1,
    deadline_s: float | None = None,
    merge_key: str = "",
) -> JobRequest:
    """A priced job."""
    seconds = StageSeconds(encode_s, denoise_s, decode_s)
    return JobRequest(
        job_id, tenant, model, priority_class, seconds, outputs, deadline_s=deadline_s, merge_key=merge_key
    )
