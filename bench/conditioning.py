"""What an encoder makes of a prompt, in this process: for benchmarks that call a denoiser by themselves."""

import torch

from services.encoder.batch import BlockBatches
from services.encoder.cache import ConditioningCache
from services.encoder.encoder import Encoder
from services.stage.hosted_model import HostedModel
from services.stage.worker import WorkerHost
from triptych.v1.job_pb2 import Conditioning, JobSpec


async def encode_alone(host: WorkerHost, spec: JobSpec) -> list[Conditioning]:
    """The conditioning of a job's prompt, on the exchange."""
    checkpoint = host.checkpoints[spec.model]
    text = HostedModel(checkpoint, ["text_encoder"], torch.float32, torch.device("cpu"))
    encoder = Encoder(host.exchange, host.thread, ConditioningCache(host.exchange, 1 << 24, 60.0), BlockBatches(1))
    return (await encoder.encode(text, spec, (0.0, ""))).conditioning
