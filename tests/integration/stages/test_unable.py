"""A worker none of whose models can be served stays, says why, and serves what is mended."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.broken_checkpoints import FAULTS, mend
from tests.fake_hub import running_hub
from tests.integration.stages.conftest import EPOCHS
from tests.integration.stages.stage_calls import job
from tests.natsd import NatsServer
from tests.workers import WorkerProcess
from triptych.errors import Reason, from_rpc_error
from triptych.exchange import Exchange
from triptych.rpc import open_channel
from triptych.v1.encoder_service_pb2 import EncodeRequest, StageCall
from triptych.v1.encoder_service_pb2_grpc import EncoderServiceStub
from triptych.v1.worker_pb2 import WORKER_STATE_LOADING, WORKER_STATE_UNABLE


async def test_it_stays_unable_until_a_model_is_mended(
    tiny_checkpoints: Path, nats_server: NatsServer, exchange: Exchange, tmp_path: Path
) -> None:
    good, folder = tiny_checkpoints / "sdxl", tmp_path / "mine"
    shutil.copytree(good, folder)
    FAULTS["truncated"].damage(folder)
    catalog = tmp_path / "models.toml"
    catalog.write_text('[models.mine]\ncheckpoint = "mine"\ndtype = "float32"\n')
    worker = WorkerProcess("encoder", "encoder-unable", catalog, nats_server.url, tmp_path, "--retry_seconds=0.2")
    worker.start()
    try:
        beat = await worker.ready(exchange, WORKER_STATE_UNABLE)
        [refused] = beat.refused_models
        assert (refused.name, refused.reason) == ("mine", FAULTS["truncated"].words)
        async with open_channel(beat.address) as channel:
            assert await health(channel) == health_pb2.HealthCheckResponse.NOT_SERVING
            request = EncodeRequest(
                call=StageCall(job_id="a", attempt=1, epoch=next(EPOCHS)), spec=job("mine", width=64, height=64)
            )
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await EncoderServiceStub(channel).Encode(request)
            error = from_rpc_error(caught.value)
            assert error.reason is Reason.MODEL_UNAVAILABLE
            assert error.reason.code == code_pb2.FAILED_PRECONDITION
            assert error.message == f"encoder-unable cannot serve 'mine': {FAULTS['truncated'].words}"
            mend(good, folder)
            ready = await worker.ready(exchange)
            assert [model.profile.name for model in ready.models] == ["mine"]
            assert not ready.refused_models
            assert ready.start_time == beat.start_time
            assert await health(channel) == health_pb2.HealthCheckResponse.SERVING
            assert (await EncoderServiceStub(channel).Encode(request)).conditioning
    finally:
        assert worker.terminate() == 0


async def test_a_hub_that_takes_its_time_does_not_keep_it_from_ending(
    tiny_checkpoints: Path,
    nats_server: NatsServer,
    exchange: Exchange,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = tmp_path / "models.toml"
    catalog.write_text('[models.mine]\ncheckpoint = "org/mine"\n')
    with running_hub({"org/mine": tiny_checkpoints / "sdxl"}, set(), "") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        hub.let_go.clear()
        worker = WorkerProcess("encoder", "encoder-waits", catalog, nats_server.url, tmp_path)
        worker.start()
        try:
            await worker.ready(exchange, WORKER_STATE_LOADING)
            assert await asyncio.to_thread(hub.asked.wait, 30)
        finally:
            assert worker.terminate() == 0


async def health(channel: grpc.aio.Channel) -> int:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    return int((await stub.Check(health_pb2.HealthCheckRequest())).status)
