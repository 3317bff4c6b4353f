"""A job from submit to download."""

from tests.integration.router.bench import Bench, kinds, spec
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import JOB_STATE_SUCCEEDED, PRIORITY_CLASS_STANDARD, STAGE_DECODE, STAGE_DENOISE, STAGE_ENCODE

ALL_KINDS = ["queued", "stage_started", "encoded", "stage_started", "stage_started", "output", "succeeded"]


async def test_a_job_goes_through_three_stages(bench: Bench) -> None:
    job = await bench.submit()
    events = await bench.events(job.job_id)
    assert kinds(events) == ALL_KINDS
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    stages = [event.stage_started.stage for event in events if event.WhichOneof("event") == "stage_started"]
    assert stages == [STAGE_ENCODE, STAGE_DENOISE, STAGE_DECODE]
    done = await bench.job(job.job_id)
    assert (done.state, done.last_sequence, done.attempt) == (JOB_STATE_SUCCEEDED, len(events), 1)
    assert done.create_time.ToNanoseconds() <= done.start_time.ToNanoseconds() <= done.end_time.ToNanoseconds()
    assert await bench.download(job.job_id) == b"output of 7"


async def test_the_last_step_is_always_told(bench: Bench) -> None:
    job = await bench.submit(spec(step_count=50))
    steps = [event.progress.step for event in await bench.events(job.job_id) if event.HasField("progress")]
    assert steps[-1] == 50
    assert len(steps) < 20  # throttled


async def test_every_output_is_decoded_from_its_own_latents(bench: Bench) -> None:
    job = await bench.submit(spec(output_count=3))
    events = await bench.events(job.job_id)
    assert sorted(event.output.index for event in events if event.HasField("output")) == [0, 1, 2]
    assert [await bench.download(job.job_id, index) for index in range(3)] == [
        b"output of 7",
        b"output of 8",
        b"output of 9",
    ]


async def test_the_accepted_spec_is_complete(bench: Bench) -> None:
    bare = spec()
    for field in ("seed", "step_count"):
        bare.ClearField(field)
    job = await bench.submit(bare)
    assert (job.spec.step_count, job.spec.width, job.spec.height, job.spec.guidance) == (20, 96, 96, 4.0)
    assert (job.spec.output_count, job.spec.priority_class) == (1, PRIORITY_CLASS_STANDARD)
    assert job.spec.HasField("seed")
    assert 0 <= job.spec.seed < 2**53
    assert not job.spec.reproducible
    assert (await bench.submit()).spec.reproducible
    await bench.events(job.job_id)
    request = bench.denoiser.calls_of(job.job_id)[0]
    assert request.spec == job.spec
    assert request.call.epoch > 0


async def test_a_prompt_known_to_the_encoder_is_told(bench: Bench) -> None:
    first, second = await bench.submit(), await bench.submit()
    await bench.events(first.job_id)
    await bench.events(second.job_id)
    assert [(await bench.job(each.job_id)).conditioning_cached for each in (first, second)] == [False, True]


async def test_generate_gives_job_events_and_chunks_in_one_stream(bench: Bench) -> None:
    bench.decoder.file_bytes = 2 * 1024 * 1024 + 5
    responses = [
        response async for response in bench.stub.GenerateMedia(pb.GenerateMediaRequest(spec=spec(output_count=2)))
    ]
    assert responses[0].WhichOneof("event") == "accepted"
    assert kinds([each.job_event for each in responses if each.HasField("job_event")])[-1] == "succeeded"
    for index in range(2):
        chunks = [each.chunk for each in responses if each.HasField("chunk") and each.chunk.output_index == index]
        assert [chunk.offset for chunk in chunks] == [0, 1024 * 1024, 2 * 1024 * 1024]
        assert b"".join(chunk.data for chunk in chunks).startswith(b"output of %d." % (7 + index))
    output_at = next(i for i, each in enumerate(responses) if each.job_event.HasField("output"))
    assert responses[output_at + 1].HasField("chunk")


async def test_device_time_is_told_and_teaches_the_price(bench: Bench) -> None:
    before = await bench.stub.EstimateJob(pb.EstimateJobRequest(spec=spec()))
    for peer in bench.peers:
        peer.device_s = 0.5
    job = await bench.submit()
    await bench.events(job.job_id)
    done = await bench.job(job.job_id)
    assert [time.ToMilliseconds() for time in (done.encode_time, done.denoise_time, done.decode_time)] == [500] * 3
    after = await bench.stub.EstimateJob(pb.EstimateJobRequest(spec=spec()))
    assert after.estimate.denoise.ToNanoseconds() > before.estimate.denoise.ToNanoseconds()
    assert after.verdict.admitted


async def test_models_and_fleet_are_shown(bench: Bench) -> None:
    models = (await bench.stub.ListModels(pb.ListModelsRequest())).models
    model = next(each for each in models if each.name == "shapes")
    assert list(model.served_stages) == [STAGE_ENCODE, STAGE_DENOISE, STAGE_DECODE]
    assert (model.defaults.width, model.limits.max_side, model.limits.side_multiple) == (96, 192, 8)
    fleet = await bench.stub.GetFleet(pb.GetFleetRequest())
    assert {worker.worker_id for worker in fleet.workers} == {"encoder-0", "denoiser-0", "decoder-0"}
    assert [pool.name for pool in fleet.pools] == ["interactive", "long"]
    assert sum(pool.worker_count for pool in fleet.pools) == 1
    assert fleet.epoch > 0
