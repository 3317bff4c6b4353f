"""Every field of every request, with values that cannot be used: each is named, and nothing comes of it.

A field that no row is about fails the test, unless it is among those for which every value is good.
"""

import io
import re
from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from PIL import Image

from tests.integration.router.bench import Bench, spec
from triptych.errors import MAX_MESSAGE, Reason, TriptychError, from_rpc_error
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import Adapter, Amendment, Attachment, JobSpec, PreviewPolicy

SERVICE = pb.DESCRIPTOR.services_by_name["RouterService"]
MOST = 2**32 - 1
# Fields of which every value is good, or that say by another error what is not there.
ANYTHING = {
    "spec.reproducible",
    "spec.allow_merging",
    "spec.attachments.media_type",  # the content decides
    "spec.adapters.scale",  # whoever names an adapter is refused by its name
    "after_sequence",
    "amendment.finish_now",
    "output_index",  # OUTPUT_UNKNOWN
}


def pictures() -> dict[str, bytes]:
    small, wide, long = io.BytesIO(), io.BytesIO(), io.BytesIO()
    Image.new("RGB", (16, 16), "red").save(small, "PNG")
    Image.new("1", (16_000, 16_000)).save(wide, "PNG")
    Image.new("1", (20_000, 1)).save(long, "PNG")
    return {"small": small.getvalue(), "bomb": wide.getvalue(), "long": long.getvalue()}


PNG = pictures()


def attached(data: bytes = PNG["small"], role: int = 1, count: int = 1) -> JobSpec:
    made = spec()
    picture = Attachment(role=1, data=data)
    picture.role = role  # type: ignore[assignment]
    made.attachments.extend([picture] * count)
    return made


def changed(**fields: Any) -> JobSpec:
    """A good spec, but for messages that JSON could not say."""
    made = spec()
    made.MergeFrom(JobSpec(**fields))
    return made


def nested(levels: int) -> JobSpec:
    made = spec()
    value = made.extra.fields["strength"]
    for _ in range(levels):
        value = value.list_value.values.add()
    value.number_value = 1
    return made


SPECS: list[tuple[str, JobSpec]] = [
    *(("spec.model", spec(model=name)) for name in ("", "nothing", "../../etc/passwd", "é" * 5000)),
    ("spec.prompt", JobSpec(model="shapes")),
    *(("spec.prompt", spec(prompt=text)) for text in ("x" * 1025, "x" * 1_000_000)),
    ("spec.negative_prompt", spec(negative_prompt="x" * 1025)),
    *(("spec.seed", spec(seed=seed)) for seed in (2**63 - 4, 2**64 - 1)),
    *(("spec.step_count", spec(step_count=count)) for count in (0, 101, MOST)),
    *(("spec.guidance", spec(guidance=scale)) for scale in ("NaN", "Infinity", "-Infinity", 1e308)),
    *((f"spec.{side}", spec(**{side: value})) for side in ("width", "height") for value in (0, 65, 193, MOST)),
    *(("spec.frame_count", spec(frame_count=count)) for count in (0, 2, MOST)),
    *(("spec.fps", spec(fps=fps)) for fps in (16, "NaN", 0, -1)),
    *(("spec.output_count", spec(output_count=count)) for count in (0, 5, MOST)),
    *(("spec.attachments[0].role", attached(role=role)) for role in (0, 77)),
    *(("spec.attachments[0].data", attached(PNG[kind])) for kind in ("bomb", "long")),
    *(("spec.attachments[0].data", attached(data)) for data in (b"", b"GIF89a", PNG["small"][:20])),
    ("spec.attachments[1].role", attached(count=2)),
    ("spec.attachments", attached(count=50)),
    ("spec.attachments", attached(bytes(3 * 2**20 + 1))),
    ("spec", attached(bytes(3_600_000))),
    *(("spec.adapters[0].name", changed(adapters=[Adapter(name=name)])) for name in ("", "../style", "x" * 9999)),
    ("spec.adapters[0].name", changed(adapters=[Adapter(name="style")] * 1000)),
    ("spec.priority_class", spec(priority_class=77)),
    *(
        ("spec.deadline", changed(deadline=Timestamp(seconds=seconds, nanos=nanos)))
        for seconds, nanos in ((1, 0), (-(2**63), 0), (2**63 - 1, 0), (4_000_000_000, -1), (4_000_000_000, 10**9))
    ),
    *(
        ("spec.finish_within", changed(finish_within=Duration(seconds=seconds, nanos=nanos)))
        for seconds, nanos in ((0, 0), (-1, 0), (1, -1), (1, 10**9), (2**63 - 1, 0))
    ),
    ("spec.finish_within", changed(finish_within=Duration(seconds=9), deadline=Timestamp(seconds=4_000_000_000))),
    *(("spec.output_format", spec(output_format=kind)) for kind in ("MEDIA_FORMAT_MP4", 77)),
    *(("spec.extra.surprise", spec(extra={"surprise": value})) for value in (1, {"a": [1]})),
    ("spec.extra.prompt", spec(extra={"prompt": "x"})),
    ("spec.extra", spec(extra={"surprise": "x" * 20_000})),
    ("spec.extra.strength", nested(40)),
    ("spec.preview", changed(preview=PreviewPolicy())),
    ("spec.preview.every_steps", changed(preview=PreviewPolicy(every_steps=0))),
    *(
        ("spec.preview.every_time", changed(preview=PreviewPolicy(every_time=Duration(seconds=seconds, nanos=nanos))))
        for seconds, nanos in ((0, 0), (0, 99_999_999), (-1, 0), (1, -1), (1, 10**9), (2**63 - 1, 0))
    ),
    *(
        ("spec.preview.max_side", changed(preview=PreviewPolicy(every_steps=1, max_side=side)))
        for side in (1, 1025, MOST)
    ),
]
REQUEST_IDS = ("a b", "../x", "é", "x" * 65, "x" * 100_000)
JOB_IDS = ("", "*", ">", "../../etc/passwd", "U" * 26, "0" * 25, "0" * 100_000)


def requests(known: str) -> Iterator[tuple[str, str, Message]]:
    """Method, field and request; `known` is the id of a job that waits."""
    for method, kind in (("SubmitJob", pb.SubmitJobRequest), ("GenerateMedia", pb.GenerateMediaRequest)):
        yield from ((method, "request_id", kind(spec=spec(), request_id=name)) for name in REQUEST_IDS)
    for field, bad in SPECS:
        yield "SubmitJob", field, pb.SubmitJobRequest(spec=bad)
        yield "GenerateMedia", field, pb.GenerateMediaRequest(spec=bad)
        yield "EstimateJob", field, pb.EstimateJobRequest(spec=bad)
    for job_id in JOB_IDS:
        yield "WatchJob", "job_id", pb.WatchJobRequest(job_id=job_id)
        yield "GetJob", "job_id", pb.GetJobRequest(job_id=job_id)
        yield "CancelJob", "job_id", pb.CancelJobRequest(job_id=job_id)
        yield "AmendJob", "job_id", pb.AmendJobRequest(job_id=job_id, amendment=Amendment(step_count=2))
        yield "DownloadOutput", "job_id", pb.DownloadOutputRequest(job_id=job_id)
    yield from (("ListJobs", "page_size", pb.ListJobsRequest(page_size=size)) for size in (1001, MOST))
    yield from (("ListJobs", "page_token", pb.ListJobsRequest(page_token=token)) for token in ("next", *JOB_IDS[1:]))
    yield "ListJobs", "states[1]", pb.ListJobsRequest(states=[1, 77])  # type: ignore[list-item]
    yield "AmendJob", "amendment", pb.AmendJobRequest(job_id=known)
    for count in (0, 101, MOST):
        request = pb.AmendJobRequest(job_id=known, amendment=Amendment(step_count=count))
        yield "AmendJob", "amendment.step_count", request
    for name in REQUEST_IDS:
        request = pb.AmendJobRequest(job_id=known, amendment=Amendment(step_count=2), request_id=name)
        yield "AmendJob", "request_id", request
    for seconds, nanos in ((0, 0), (-1, 0), (3601, 0), (1, -1), (1, 10**9), (2**63 - 1, 0)):
        interval = Duration(seconds=seconds, nanos=nanos)
        yield "WatchFleet", "interval", pb.WatchFleetRequest(interval=interval)


def fields(message: Descriptor, before: str = "") -> Iterator[str]:
    """Paths of the fields that hold values, lists without an index."""
    for field in message.fields:
        inner = field.message_type
        if inner is not None and inner.file.package == "triptych.v1" and inner.fields:
            yield from fields(inner, f"{before}{field.name}.")
        else:
            yield before + field.name


def test_no_field_was_forgotten() -> None:
    covered: dict[str, set[str]] = {}
    for method, field, _ in requests("known"):
        covered.setdefault(method, set()).add(re.sub(r"\[\d+\]|(?<=spec\.extra)\..*", "", field))
    for method in SERVICE.methods:
        missing = set(fields(method.input_type)) - covered.get(method.name, set()) - ANYTHING
        assert not missing, f"{method.name}: {missing}"


async def test_each_is_named_and_nothing_comes_of_it(bench: Bench) -> None:
    bench.encoder.gate.close()
    waiting = await bench.submit()
    for method, field, request in requests(waiting.job_id):
        error = await refusal(bench, method, request)
        told = f"{method} {field} {str(request)[:200]}: {error.reason} {error.message[:200]}"
        wanted = Reason.MODEL_UNKNOWN if field == "spec.model" and request.spec.model else Reason.INVALID_FIELD  # type: ignore[attr-defined]
        assert error.reason is wanted, told
        assert field in {violation.field for violation in error.violations if violation.description}, told
        assert len(error.message.encode()) <= MAX_MESSAGE + 3, told
    jobs = (await bench.stub.ListJobs(pb.ListJobsRequest())).jobs
    assert [(job.job_id, job.spec.step_count) for job in jobs] == [(waiting.job_id, 4)]
    await bench.encoder.gate.open()
    await bench.events(waiting.job_id)


async def refusal(bench: Bench, method: str, request: Message) -> TriptychError:
    call = getattr(bench.stub, method)(request, timeout=10)
    try:
        await (call.read() if hasattr(call, "read") else call)
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error)
    raise AssertionError(f"{method} took {str(request)[:200]}")
