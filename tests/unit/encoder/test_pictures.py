"""Pictures are decoded beside the event loop: a small file can hold 64 million pixels, and heartbeats must go on."""

import asyncio
import threading
from typing import Any, cast

import pytest

from services.encoder.batch import BlockBatches
from services.encoder.encoder import Encoder
from services.stage.hosted_model import HostedModel
from triptych.errors import Reason, TriptychError
from triptych.v1.job_pb2 import ATTACHMENT_ROLE_IMAGE, Attachment, JobSpec

WAIT_S = 10.0


class Slow:
    """A model whose pictures take until somebody says that they are decoded."""

    def __init__(self) -> None:
        self.begun, self.decoded = threading.Event(), threading.Event()

    def inputs(self, spec: JobSpec) -> dict[str, Any]:
        self.begun.set()
        why = "decoded" if self.decoded.wait(WAIT_S) else "the event loop stood still"
        raise TriptychError(Reason.INVALID_FIELD, why)


async def test_the_event_loop_goes_on_meanwhile() -> None:
    model = Slow()
    encoder = Encoder(cast(Any, None), cast(Any, None), cast(Any, None), BlockBatches(1))
    spec = JobSpec(attachments=[Attachment(role=ATTACHMENT_ROLE_IMAGE)])
    encoding = asyncio.create_task(encoder.encode(cast(HostedModel, model), spec, (0.0, "job")))
    assert await asyncio.to_thread(model.begun.wait, WAIT_S)
    model.decoded.set()
    with pytest.raises(TriptychError, match=r"^decoded$"):
        await encoding
