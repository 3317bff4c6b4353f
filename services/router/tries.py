"""What was tried of a job in vain, in the scheduler's words and in the contract's."""

from services.router.core.job import Task, Tries
from services.router.stages import FROM_PROTO, TO_PROTO
from triptych.v1 import job_pb2


def to_message(tries: Tries) -> job_pb2.Tries:
    return job_pb2.Tries(
        stage=TO_PROTO[tries.task.stage],
        output_index=tries.task.output_index,
        failure_count=tries.failures,
        setback_count=tries.setbacks,
        suspect=tries.suspect,
    )


def from_message(job_id: str, message: job_pb2.Tries) -> Tries:
    task = Task(job_id, FROM_PROTO[message.stage], message.output_index)
    return Tries(task, message.failure_count, message.setback_count, message.suspect)
