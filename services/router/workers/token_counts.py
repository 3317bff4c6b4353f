"""Which of a job's texts its model would cut: an encoder is asked, the router knows no tokenizer."""

from collections.abc import Iterable

import grpc
import structlog

from services.router.core.job import Stage
from services.router.workers.fleet import Fleet
from services.router.workers.known_worker import KnownWorker
from triptych.errors import from_rpc_error
from triptych.v1.encoder_service_pb2 import CountTokensRequest
from triptych.v1.encoder_service_pb2_grpc import EncoderServiceStub
from triptych.v1.job_pb2 import JobSpec, TextReading

log = structlog.get_logger()

# An estimate goes out without rather than late.
_TIMEOUT_S = 0.5


async def foretold_cuts(fleet: Fleet, spec: JobSpec) -> list[TextReading]:
    """What would be read of each text that is too long; nothing if no encoder says so in time."""
    worker = _encoder(fleet, spec.model)
    if worker is None:
        return []
    request = CountTokensRequest(spec=spec)
    del request.spec.attachments[:]
    try:
        response = await EncoderServiceStub(worker.channel).CountTokens(request, timeout=_TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        log.info("tokens_not_counted", worker=worker.worker_id, reason=from_rpc_error(error).reason.name)
        return []
    return cut_texts(response.texts)


def cut_texts(readings: Iterable[TextReading]) -> list[TextReading]:
    """Of each text that some tokenizer cut, what every tokenizer read."""
    read = list(readings)
    cut = {reading.field for reading in read if reading.token_count > reading.token_limit}
    return [reading for reading in read if reading.field in cut]


def _encoder(fleet: Fleet, model: str) -> KnownWorker | None:
    """Any that is ready."""
    for worker in fleet:
        info = worker.info()
        if info.stage is Stage.ENCODE and info.ready and model in info.models:
            return worker
    return None
