"""The three stages, in the scheduler's words and in the contract's."""

from services.router.core.job import Stage
from triptych.v1 import job_pb2

TO_PROTO = {
    Stage.ENCODE: job_pb2.Stage.STAGE_ENCODE,
    Stage.DENOISE: job_pb2.Stage.STAGE_DENOISE,
    Stage.DECODE: job_pb2.Stage.STAGE_DECODE,
}
FROM_PROTO = {message: stage for stage, message in TO_PROTO.items()}
