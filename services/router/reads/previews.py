"""Previews on their way from decoders to whoever watches their job: the newest alone, and only while it is current."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import nats.errors
import structlog
from google.protobuf.message import DecodeError
from nats.aio.client import Client

from services.router.jobs import LiveJob
from triptych.previews import made_subject
from triptych.v1.job_pb2 import Job, JobState, Preview

log = structlog.get_logger()
# Decoders make them smaller; a gRPC message holds 4 MiB.
MAX_BYTES = 3 * 1024 * 1024


@dataclass(eq=False)
class _Ear:
    """Of one job: how many watch it, and the subscription."""

    count: int = 0
    subscription: Any = None


class PreviewFeed:
    """Hears the previews of the jobs that are being watched, and of no other."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._ears: dict[str, _Ear] = {}

    @contextlib.asynccontextmanager
    async def watching(self, job: LiveJob) -> AsyncIterator[None]:
        """As long as the block lasts the job's newest preview is kept up to date, and the job woken for it."""
        if job.over or not job.spec.HasField("preview"):
            yield
            return
        ear = self._ears.setdefault(job.job_id, _Ear())
        ear.count += 1
        try:
            if ear.count == 1:
                ear.subscription = await self._subscribe(job)
            yield
        finally:
            ear.count -= 1
            if ear.count == 0:
                del self._ears[job.job_id]
                job.preview = None
                if ear.subscription is not None:
                    with contextlib.suppress(nats.errors.Error):
                        await ear.subscription.unsubscribe()

    async def _subscribe(self, job: LiveJob) -> Any:
        async def hear(message: Any) -> None:
            try:
                preview = Preview.FromString(message.data)
            except DecodeError:
                log.warning("preview_dropped", subject=message.subject)
                return
            if is_current(job.job, job.preview, preview):
                job.preview = preview
                job.wake()

        try:
            return await self._client.subscribe(made_subject(job.job_id), cb=hear)
        except nats.errors.Error as error:
            log.warning("previews_unheard", job_id=job.job_id, error=repr(error))
            return None


def is_current(job: Job, last: Preview | None, preview: Preview) -> bool:
    """Whether a preview shows more of the job than is known: of its running attempt, of an output that is not done."""
    return (
        job.state == JobState.JOB_STATE_RUNNING
        and preview.job_id == job.job_id
        and preview.attempt >= job.attempt
        and preview.output_index < job.spec.output_count
        and all(output.index != preview.output_index for output in job.outputs)
        and (last is None or _is_newer(preview, last))
        and len(preview.data) <= MAX_BYTES
    )


def _is_newer(preview: Preview, last: Preview) -> bool:
    """Of two outputs neither is the older one: they may be made together."""
    if preview.attempt != last.attempt:
        return preview.attempt > last.attempt
    return preview.output_index != last.output_index or preview.step > last.step
