"""What a direct caller gets wrong is told by its field, on each worker's own port."""

from collections.abc import Awaitable
from typing import Any

import grpc
import pytest

from tests.integration.stages.stage_calls import StageCalls, job
from triptych.errors import Reason, from_rpc_error
from triptych.v1.denoiser_service_pb2 import DenoiseRequest
from triptych.v1.encoder_service_pb2 import EncodeResponse
from triptych.v1.job_pb2 import Checkpoint, Conditioning, Latents
from triptych.v1.tensor_pb2 import DataRef

REFS = [DataRef(), DataRef(store="latents", bundle_id="../x"), DataRef(store="attic", bundle_id="0" * 32)]


async def wrong(call: Awaitable[Any]) -> list[str]:
    """The fields that the call's error names."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = from_rpc_error(caught.value)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.reason is Reason.INVALID_FIELD
    return [violation.field for violation in error.violations]


async def denoise(calls: StageCalls, **fields: Any) -> None:
    async for _ in calls.denoiser.Denoise(DenoiseRequest(call=calls.call(), spec=job("sdxl"), **fields)):
        pass


@pytest.mark.parametrize("ref", REFS, ids=["empty", "no bundle id", "no store"])
async def test_references(calls: StageCalls, ref: DataRef) -> None:
    conditioning = [Conditioning(block="text_encoder", data=ref)]
    assert await wrong(denoise(calls, conditioning=conditioning)) == ["conditioning[0].data"]
    assert await wrong(denoise(calls, checkpoint=Checkpoint(data=ref))) == ["checkpoint.data"]
    assert await wrong(denoise(calls, refined_latents=[Latents(data=ref)])) == ["refined_latents[0].data"]
    encoded = EncodeResponse(conditioning=conditioning)
    assert await wrong(calls.decode(job("sdxl"), encoded, Latents(data=ref))) == [
        "conditioning[0].data",
        "latents.data",
    ]


async def test_extra_inputs(calls: StageCalls) -> None:
    for value in ("x", [1], 99):
        assert await wrong(calls.encode(job("sdxl", extra={"clip_skip": value}))) == ["spec.extra.clip_skip"]
