"""What a stage is called in logs, in subjects, and in the ids of its workers."""

from triptych.v1.job_pb2 import Stage


def stage_name(stage: "Stage.ValueType") -> str:
    """ "encode", "denoise" or "decode"."""
    return Stage.Name(stage).removeprefix("STAGE_").lower()
