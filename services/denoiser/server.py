"""The denoiser's gRPC face."""

from collections.abc import AsyncIterator

import structlog
from grpc.aio import Server

from services.denoiser.config import DenoiserConfig
from services.denoiser.denoising import Denoising
from services.denoiser.forward_costs import default_cache, forward_costs
from services.denoiser.forward_seam import add_forward_seam
from services.denoiser.merging import Merging
from services.stage.checkpoint import DENOISE, Checkpoint
from services.stage.failures import stage_failure
from services.stage.hosted_model import HostedModel
from services.stage.hosted_models import HostedModels
from services.stage.ref_check import check_refs
from services.stage.spec_check import check_amendment, check_spec
from services.stage.worker import WorkerHost
from triptych.errors import Reason, TriptychError
from triptych.rpc.typing import Context
from triptych.v1.denoiser_service_pb2 import AmendDenoiseRequest, AmendDenoiseResponse, DenoiseRequest, DenoiseResponse
from triptych.v1.denoiser_service_pb2_grpc import DenoiserServiceServicer, add_DenoiserServiceServicer_to_server
from triptych.v1.encoder_service_pb2 import StageCall
from triptych.v1.worker_pb2 import CacheStats

log = structlog.get_logger()


class DenoiserServer(DenoiserServiceServicer):
    """Serves `Denoise` and `AmendDenoise`."""

    service_name = "triptych.v1.DenoiserService"

    def __init__(self, host: WorkerHost, config: DenoiserConfig) -> None:
        self._host = host
        self._config = config
        self._merging = Merging(host.thread, host.device, config.max_merge)
        host.thread.merge_with(self._merging)
        host.merge_keys = self._merging.paying
        self.models = HostedModels(host, self._finish, preemptible=config.preemption == "block")
        # By job and attempt; bounded by the calls that are let in.
        self._running: dict[tuple[str, int], Denoising] = {}

    def register(self, server: Server) -> None:
        add_DenoiserServiceServicer_to_server(self, server)

    def load(self, checkpoint: Checkpoint) -> None:
        self.models.load(checkpoint)

    def _finish(self, model: HostedModel) -> None:
        self._count(model.checkpoint)
        # Its forwards may meet those of other jobs.
        for name, network in model.block(DENOISE).networks.items():
            add_forward_seam(network, f"{model.checkpoint.name}.{name}", self._host.thread, self._merging)

    def _count(self, checkpoint: Checkpoint) -> None:
        """What the catalog says of a model's cost is not looked for."""
        entry = self._host.models[checkpoint.name]
        if entry.cost.tflop_per_ktoken is None:
            self._host.forward_costs[checkpoint.name] = forward_costs(checkpoint, entry.defaults, default_cache())

    def hand_back(self, within_s: float) -> None:
        for denoising in self._running.values():
            denoising.hand_back(within_s)

    def cache_stats(self) -> CacheStats:
        return CacheStats()

    async def Denoise(self, request: DenoiseRequest, context: Context) -> AsyncIterator[DenoiseResponse]:
        with self._host.calls.admit(request.call) as call:
            check_spec(request.spec)
            check_refs(conditioning=request.conditioning, refined_latents=request.refined_latents)
            if request.HasField("checkpoint"):
                check_refs(checkpoint=request.checkpoint)
            model = self.models.get(request.spec.model)
            denoising = Denoising(self._host, self._config, model, request, call)
            self._running[_start_of(request.call)] = denoising
            try:
                async for event in denoising.events():
                    yield event
            except ExceptionGroup as group:
                raise self._failure(group.exceptions[0], denoising, request) from group
            except Exception as error:
                raise self._failure(error, denoising, request) from error
            finally:
                del self._running[_start_of(request.call)]

    def _failure(self, error: Exception, denoising: Denoising, request: DenoiseRequest) -> TriptychError:
        return stage_failure(error, "denoising", request.spec, underway=denoising.underway)

    async def AmendDenoise(self, request: AmendDenoiseRequest, context: Context) -> AmendDenoiseResponse:
        self._host.calls.check_term(request.call)
        amendment = request.amendment if request.HasField("amendment") else None
        if amendment is not None:
            check_amendment(amendment)
        denoising = self._running.get(_start_of(request.call))
        if denoising is None:
            call = request.call
            raise TriptychError(Reason.JOB_UNKNOWN, f"attempt {call.attempt} of job {call.job_id} does not run here")
        if request.hand_back:
            denoising.hand_back(0.0)
        return AmendDenoiseResponse(step_count=denoising.amend(request.call.rank, amendment))


def _start_of(call: StageCall) -> tuple[str, int]:
    return (call.job_id, call.attempt)
