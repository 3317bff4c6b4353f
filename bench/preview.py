"""What previews after every step cost the job that they are of: real processes, gRPC and NATS, on the CPU.

The denoiser has one core for itself and the decoder another, which it shares with NATS and with the caller, in both
arms. `slowdown`: the time of a job with previews to its time without, from the call to its end, the median of
alternating pairs; `cpu_slowdown`: the same of the processor time that the denoiser spent, which other work on the
machine disturbs less. `latency_ms`: from the request on NATS to the preview.

Every step asks for one, but a denoiser begins two previews of an output `spacing_s` apart at least (by default 0.1, ten
a second). So of the previews that were due `made` were published, and `dropped` were not: the one before was on its
way, or had just begun. `--spacing 0` measures without that floor: as many as a decoder makes.

`embedded` is the embedded model with its tiny decoder, whose steps take some 12 ms; `long` a FLUX of random weights
with a linear map, whose steps take some 400 ms.

    python -m bench.preview --json [--spacing S]
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import nats.errors
import psutil
import torch

from bench.conditioning import encode_alone
from bench.long_model import spec_of, write_long_model
from bench.program import bench_folder, options_of, tell
from bench.stock import CHECKPOINT
from services.denoiser.config import DenoiserConfig
from services.encoder.config import EncoderConfig
from services.stage.worker import WorkerHost
from tests.natsd import NatsServer
from tests.workers import WorkerProcess
from triptych.exchange import Exchange, ExchangeConfig
from triptych.logs import configure_logs
from triptych.previews import latents_subject
from triptych.rpc import open_channel
from triptych.v1.denoiser_service_pb2 import DenoiseRequest
from triptych.v1.denoiser_service_pb2_grpc import DenoiserServiceStub
from triptych.v1.encoder_service_pb2 import StageCall
from triptych.v1.job_pb2 import STAGE_ENCODE, Conditioning, JobSpec, Preview, PreviewPolicy
from triptych.v1.preview_pb2 import PreviewLatents

# Steps of a job, and pairs of jobs.
ARMS = {"embedded": (100, 21), "long": (6, 6)}
# As the catalog of `write_long_model` calls them.
_MODELS = {"embedded": "short", "long": "long"}
WARM_UP = 2
SPACING_S = DenoiserConfig.preview_spacing_seconds
WAIT_S = 120.0


@dataclass
class Sightings:
    """Requests and previews as they pass NATS, by job, output and step, with the time of each."""

    asked: dict[tuple[str, int, int], float] = field(default_factory=dict)
    made: dict[tuple[str, int, int], float] = field(default_factory=dict)

    async def on_request(self, message: Any) -> None:
        request = PreviewLatents.FromString(message.data)
        self.asked[request.call.job_id, request.output_index, request.step] = time.perf_counter()

    async def on_preview(self, message: Any) -> None:
        preview = Preview.FromString(message.data)
        self.made[preview.job_id, preview.output_index, preview.step] = time.perf_counter()

    def latencies_ms(self) -> list[float]:
        return [(at_s - self.asked[place]) * 1e3 for place, at_s in self.made.items() if place in self.asked]


@dataclass
class PreviewBench:
    """A denoiser and a decoder as processes, and what is needed to call the denoiser."""

    exchange: Exchange
    stub: Any
    denoiser: psutil.Process
    conditioning: dict[str, list[Conditioning]]
    sightings: Sightings = field(default_factory=Sightings)
    _ids: "count[int]" = field(default_factory=count)

    async def seconds(self, spec: JobSpec) -> tuple[float, float]:
        """How long a job takes, from the call to its end, and the denoiser's processor time meanwhile."""
        call = StageCall(job_id=f"job-{next(self._ids)}", attempt=1, epoch=1, rank=1.0)
        request = DenoiseRequest(call=call, spec=spec, conditioning=self.conditioning[spec.model])
        began, used = time.perf_counter(), self._used_s()
        async for _ in self.stub.Denoise(request):
            pass
        return time.perf_counter() - began, self._used_s() - used

    def _used_s(self) -> float:
        times = self.denoiser.cpu_times()
        return float(times.user + times.system)

    async def measure(self, name: str) -> dict[str, object]:
        """One model, both arms in turn."""
        step_count, pairs = ARMS[name]
        plain = spec_of(_MODELS[name], step_count)
        previewed = JobSpec()
        previewed.CopyFrom(plain)
        previewed.preview.CopyFrom(PreviewPolicy(every_steps=1, max_side=256))
        with_s: list[tuple[float, float]] = []
        without_s: list[tuple[float, float]] = []
        for index in range(WARM_UP + pairs):
            if index == WARM_UP:
                self.sightings.asked.clear()
                self.sightings.made.clear()
            # Which is first alternates too.
            for spec in (plain, previewed) if index % 2 else (previewed, plain):
                taken_s = await self.seconds(spec)
                if index >= WARM_UP:
                    (with_s if spec is previewed else without_s).append(taken_s)
        due, made = pairs * (step_count - 1), len(self.sightings.made)
        return {
            "steps": step_count,
            "pairs": pairs,
            "step_ms": round(median(taken_s for taken_s, _ in without_s) / step_count * 1e3, 1),
            "slowdown": _ratio([taken for taken, _ in with_s], [taken for taken, _ in without_s]),
            "cpu_slowdown": _ratio([used for _, used in with_s], [used for _, used in without_s]),
            "due": due,
            "made": made,
            "dropped": due - made,
            "latency_ms": round(median(self.sightings.latencies_ms()), 1),
        }


def _ratio(ones: list[float], others: list[float]) -> float:
    return round(median(one / other for one, other in zip(ones, others, strict=True)), 3)


@asynccontextmanager
async def preview_bench(folder: Path, spacing_s: float) -> AsyncIterator[PreviewBench]:
    """Start everything: the denoiser on the first core that there is, all else on the second."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("two cores are needed: one for the denoiser, one for the decoder")
    configure_logs("warning")
    torch.set_num_threads(1)
    catalog = write_long_model(folder)
    text = catalog.read_text()
    catalog.write_text(
        text.replace("[models.short]", f'[models.short]\ntiny_decoder = "{CHECKPOINT.parent / "tiny_decoder"}"')
    )
    os.sched_setaffinity(0, cores[1:2])
    nats_server = NatsServer(folder / "nats")
    nats_server.start()
    flags = {"denoiser": [f"--preview_spacing_seconds={spacing_s}"], "decoder": []}
    workers = [
        WorkerProcess(stage, f"{stage}-0", catalog, nats_server.url, folder, *more) for stage, more in flags.items()
    ]
    try:
        for worker, core in zip(workers, cores, strict=False):
            os.sched_setaffinity(0, [core])  # what is started inherits it
            worker.start()
        os.sched_setaffinity(0, cores[1:2])
        async with Exchange(ExchangeConfig(url=nats_server.url)) as exchange:
            for worker in workers:
                await worker.ready(exchange)
            async with open_channel(workers[0].address) as channel:
                conditioning, fingerprints = await _encoded(exchange, catalog)
                denoiser = psutil.Process(workers[0].pid)
                bench = PreviewBench(exchange, DenoiserServiceStub(channel), denoiser, conditioning)
                await exchange.control.subscribe("triptych.v1.preview.made.*", cb=bench.sightings.on_preview)
                for fingerprint in fingerprints.values():
                    await _served(exchange, fingerprint)
                    subject = latents_subject(fingerprint)
                    await exchange.bulk.subscribe(subject, cb=bench.sightings.on_request)
                yield bench
    finally:
        for worker in workers:
            worker.terminate()
        nats_server.stop()
        os.sched_setaffinity(0, cores)


async def _served(exchange: Exchange, fingerprint: str) -> None:
    """Wait until the decoder makes previews of a model: it answers, if only to refuse."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                await exchange.control.request(latents_subject(fingerprint), b"", timeout=WAIT_S)
            except nats.errors.NoRespondersError:
                await asyncio.sleep(0.1)
            else:
                return


async def _encoded(exchange: Exchange, catalog: Path) -> tuple[dict[str, list[Conditioning]], dict[str, str]]:
    """The prompt's conditioning, and the fingerprint, of each model."""
    host = WorkerHost(EncoderConfig(device="cpu", catalog=catalog), STAGE_ENCODE, exchange)
    host.read_catalog()
    host.thread.start()
    conditioning = {model: await encode_alone(host, spec_of(model, 1)) for model in _MODELS.values()}
    fingerprints = {model: host.checkpoints[model].fingerprint for model in _MODELS.values()}
    host.thread.close()
    return conditioning, fingerprints


async def run(spacing_s: float) -> dict[str, object]:
    with bench_folder() as folder:
        async with preview_bench(folder, spacing_s) as bench:
            measured = {name: await bench.measure(name) for name in ARMS}
    return {"benchmark": "preview", "spacing_s": spacing_s, **measured}


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--spacing", type=float, default=SPACING_S, help="seconds between two previews, at least")
    options = parser.parse_args()
    tell(asyncio.run(run(options.spacing)), options.json)


if __name__ == "__main__":
    main()
