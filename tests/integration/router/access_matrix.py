"""Who is answered what: every call of the contract × every kind of caller."""

from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import Message

from tests.integration.router.bench import spec
from triptych.errors import Reason
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import Amendment

DENIED, UNKNOWN_JOB = Reason.PERMISSION_DENIED, Reason.JOB_UNKNOWN


@dataclass(frozen=True)
class Row:
    """One call: its request, made from a job's id, and what each caller is answered; None: what it asked for.

    `reader` has the scope "read" alone and `submitter` "submit" alone, both of the job's tenant; `other` has both, and
    is another tenant.
    """

    request: Callable[[str], Message]
    reader: Reason | None
    submitter: Reason | None
    other: Reason | None


def submit(_: str) -> Message:
    return pb.SubmitJobRequest(spec=spec())


MATRIX = {
    "SubmitJob": Row(submit, DENIED, None, None),
    "GenerateMedia": Row(lambda _: pb.GenerateMediaRequest(spec=spec()), DENIED, DENIED, None),
    "EstimateJob": Row(lambda _: pb.EstimateJobRequest(spec=spec()), DENIED, None, None),
    "WatchJob": Row(lambda job: pb.WatchJobRequest(job_id=job), None, DENIED, UNKNOWN_JOB),
    "GetJob": Row(lambda job: pb.GetJobRequest(job_id=job), None, DENIED, UNKNOWN_JOB),
    "ListJobs": Row(lambda _: pb.ListJobsRequest(), None, DENIED, None),
    "CancelJob": Row(lambda job: pb.CancelJobRequest(job_id=job), DENIED, None, UNKNOWN_JOB),
    # As many steps as it has run: nothing to do.
    "AmendJob": Row(
        lambda job: pb.AmendJobRequest(job_id=job, amendment=Amendment(step_count=4)), DENIED, None, UNKNOWN_JOB
    ),
    "DownloadOutput": Row(lambda job: pb.DownloadOutputRequest(job_id=job), None, DENIED, UNKNOWN_JOB),
    "ListModels": Row(lambda _: pb.ListModelsRequest(), None, None, None),
    "GetFleet": Row(lambda _: pb.GetFleetRequest(), None, None, None),
    "WatchFleet": Row(lambda _: pb.WatchFleetRequest(), None, None, None),
}
# Calls about one job: their rows hold whatever it is doing.
OF_A_JOB = ("GetJob", "WatchJob", "CancelJob", "AmendJob", "DownloadOutput")


def expected(row: Row) -> dict[str, Reason | None]:
    """What each kind of caller is answered."""
    return {
        "none": Reason.UNAUTHENTICATED,
        "wrong": Reason.UNAUTHENTICATED,
        "reader": row.reader,
        "submitter": row.submitter,
        "other": row.other,
        "own": None,
        "admin": None,
    }
