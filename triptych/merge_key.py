"""Which jobs are alike enough to be computed together: one word for the router and the denoiser."""

from triptych.v1.job_pb2 import JobSpec


def merge_key(spec: JobSpec) -> str:
    """Equal for jobs whose forwards may be merged and are likely to be of one shape; "" if the job may not be merged.

    A hint: what is computed together is decided forward by forward.
    """
    if spec.reproducible and not spec.allow_merging:
        return ""
    return f"{spec.model}/{spec.width}x{spec.height}x{spec.frame_count or 1}"
