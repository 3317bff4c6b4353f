"""The bundles that a job's record names: what it needs, and what it is to hand out."""

from collections.abc import Iterator

from triptych.v1.job_pb2 import JobRecord
from triptych.v1.tensor_pb2 import DataRef


def bundles_of(record: JobRecord) -> Iterator[DataRef]:
    """All of them, of every store."""
    for conditioning in record.conditioning:
        yield conditioning.data
    for latents in (*record.latents, *record.refined_latents):
        yield latents.data
    if record.HasField("checkpoint"):
        yield record.checkpoint.data
    for output in record.job.outputs:
        yield output.data
