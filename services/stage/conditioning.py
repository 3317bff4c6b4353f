"""Which of a job's conditioning is for which of its outputs."""

from triptych.v1.job_pb2 import Conditioning


def is_for(entry: Conditioning, output_index: int) -> bool:
    """Whether an output wants the entry: one that noise was drawn for is one output's own, the others are for all."""
    return not entry.HasField("output_index") or entry.output_index == output_index
