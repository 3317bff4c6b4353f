"""Small workloads."""

from services.router.core.job import StageSeconds
from services.router.simulate.workload import SimulatedJob, job_id


def job(number: int, arrival_s: float, service_s: float, kind: str = "image", **more: object) -> SimulatedJob:
    """A job; `encode_s` and `decode_s` come beside its denoise."""
    seconds = StageSeconds(float(more.pop("encode_s", 0.0)), service_s, float(more.pop("decode_s", 0.0)))  # type: ignore[arg-type]
    model = str(more.pop("model", kind))
    return SimulatedJob(job_id(number), arrival_s, kind, seconds, model, **more)  # type: ignore[arg-type]


def mixed(count: int = 60) -> list[SimulatedJob]:
    """Images of 1 to 3 s every 2 s, and every tenth a video of 40 s; two tenants."""
    return [
        job(n, 2.0 * n, 40.0, "video", tenant="b") if n % 10 == 5 else job(n, 2.0 * n, 1.0 + n % 3, tenant="a")
        for n in range(count)
    ]
