"""The encoder's gRPC face."""

import structlog
from grpc.aio import Server

from services.encoder.batch import BlockBatches
from services.encoder.cache import ConditioningCache
from services.encoder.config import EncoderConfig
from services.encoder.encoder import Encoder
from services.encoder.token_counts import foretold_readings
from services.stage.checkpoint import Checkpoint
from services.stage.failures import stage_failure
from services.stage.hosted_models import HostedModels
from services.stage.spec_check import check_spec
from services.stage.worker import WorkerHost
from triptych.durations import duration_of
from triptych.rpc.at_work import say_at_work
from triptych.rpc.typing import Context
from triptych.v1.encoder_service_pb2 import (
    CountTokensRequest,
    CountTokensResponse,
    EncodeRequest,
    EncodeResponse,
    StageCall,
)
from triptych.v1.encoder_service_pb2_grpc import EncoderServiceServicer, add_EncoderServiceServicer_to_server
from triptych.v1.job_pb2 import Conditioning
from triptych.v1.worker_pb2 import CacheStats

log = structlog.get_logger()


class EncoderServer(EncoderServiceServicer):
    """Serves `Encode` and `CountTokens`."""

    service_name = "triptych.v1.EncoderService"

    def __init__(self, host: WorkerHost, config: EncoderConfig) -> None:
        self._host = host
        self._per_tenant = config.cache_scope == "tenant"
        self._models = HostedModels(host)
        self._cache = ConditioningCache(
            host.exchange, config.cache_bytes, ttl_s=config.exchange.conditioning_index_ttl_s
        )
        self._encoder = Encoder(host.exchange, host.thread, self._cache, BlockBatches(config.max_batch))

    def register(self, server: Server) -> None:
        add_EncoderServiceServicer_to_server(self, server)

    def load(self, checkpoint: Checkpoint) -> None:
        self._models.load(checkpoint)

    def hand_back(self, within_s: float) -> None:
        self._host.hand_back_waiting()

    def cache_stats(self) -> CacheStats:
        return self._cache.stats

    def _owner(self, call: StageCall) -> str:
        """Whose the conditioning is; "" for everyone's."""
        return call.tenant if self._per_tenant else ""

    async def Encode(self, request: EncodeRequest, context: Context) -> EncodeResponse:
        with self._host.calls.admit(request.call):
            check_spec(request.spec)
            model = self._models.get(request.spec.model)
            await say_at_work(context)
            try:
                rank = (request.call.rank, request.call.job_id)
                encoded = await self._encoder.encode(model, request.spec, rank, self._owner(request.call))
            except Exception as error:
                raise stage_failure(error, "encoding", request.spec) from error
            _log_cuts(encoded.conditioning)
        return EncodeResponse(
            conditioning=encoded.conditioning, cached=encoded.cached, device_time=duration_of(encoded.device_s)
        )

    async def CountTokens(self, request: CountTokensRequest, context: Context) -> CountTokensResponse:
        model = self._models.get(request.spec.model)
        try:
            # Tokenizers change as they are used: they belong to the device thread, as all of a model does.
            texts = await self._host.thread.run((float("-inf"), ""), lambda: foretold_readings(model, request.spec))
        except Exception as error:
            raise stage_failure(error, "counting tokens", request.spec) from error
        return CountTokensResponse(texts=texts)


def _log_cuts(conditioning: list[Conditioning]) -> None:
    """Counts alone: what was cut is the client's."""
    for text in (text for entry in conditioning for text in entry.texts):
        if text.token_count > text.token_limit:
            log.info("text_cut", tokenizer=text.tokenizer, token_count=text.token_count, token_limit=text.token_limit)
