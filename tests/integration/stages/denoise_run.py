"""One denoise that is read, and changed, as it goes on."""

import grpc

from tests.integration.stages.stage_calls import StageCalls
from triptych.v1.denoiser_service_pb2 import AmendDenoiseRequest, DenoiseRequest, DenoiseResponse
from triptych.v1.encoder_service_pb2 import EncodeResponse, StageCall
from triptych.v1.job_pb2 import Amendment, FinishNow, JobSpec, Latents

FINISH = Amendment(finish_now=FinishNow())


class Run:
    """What it has told so far."""

    def __init__(self, calls: StageCalls, spec: JobSpec, encoded: EncodeResponse, **more: object) -> None:
        self._calls = calls
        self.call = calls.call(rank=5.0)
        request = DenoiseRequest(call=self.call, spec=spec, conditioning=encoded.conditioning, **more)  # type: ignore[arg-type]
        self._stream = calls.denoiser.Denoise(request)
        self.steps: list[tuple[int, int, int]] = []
        self.latents: list[Latents] = []

    async def until(self, output_index: int, step: int) -> None:
        while not self.steps or self.steps[-1][:2] < (output_index, step):
            self._take(await self._stream.read())

    async def end(self) -> list[Latents]:
        while (event := await self._stream.read()) is not grpc.aio.EOF:
            self._take(event)
        return sorted(self.latents, key=lambda each: each.output_index)

    async def amend(self, amendment: Amendment | None, rank: float = 5.0) -> int:
        call = StageCall()
        call.CopyFrom(self.call)
        call.rank = rank
        answer = await self._calls.denoiser.AmendDenoise(AmendDenoiseRequest(call=call, amendment=amendment))
        return int(answer.step_count)

    def _take(self, event: DenoiseResponse) -> None:
        if event.HasField("progress"):
            progress = event.progress
            self.steps.append((progress.output_index, progress.step, progress.step_count))
        if event.HasField("latents"):
            self.latents.append(event.latents)
