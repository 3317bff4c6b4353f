"""A client hears which of its texts were too long: before, if an encoder can tell, and with the job."""

from collections.abc import Iterable

from tests.integration.router.bench import Bench, spec
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import JobSpec, TextReading

LONG = "one two three four five six seven eight nine ten"
# The other text fits, and is not told of.
READ = [("prompt", "tokenizer", 10, 8), ("prompt", "tokenizer_2", 10, 16)]


def read(texts: Iterable[TextReading]) -> list[tuple[str, str, int, int]]:
    return [(text.field, text.tokenizer, text.token_count, text.token_limit) for text in texts]


async def estimated(bench: Bench, job: JobSpec) -> list[tuple[str, str, int, int]]:
    answer: pb.EstimateJobResponse = await bench.stub.EstimateJob(pb.EstimateJobRequest(spec=job))
    assert answer.verdict.admitted
    return read(answer.cut_texts)


async def test_the_event_and_the_job_tell(bench: Bench) -> None:
    job = await bench.submit(spec(prompt=LONG, negative_prompt="blur"))
    encoded = (await bench.until(job.job_id, "encoded")).encoded
    assert read(encoded.cut_texts) == READ
    await bench.until(job.job_id, "succeeded")
    assert read((await bench.job(job.job_id)).cut_texts) == READ
    short = await bench.submit(spec(prompt="one"))
    assert not (await bench.until(short.job_id, "encoded")).encoded.cut_texts


async def test_a_job_that_goes_on_from_another_tells_what_was_cut_there(bench: Bench) -> None:
    job = await bench.submit(spec(prompt=LONG))
    await bench.until(job.job_id, "succeeded")
    refined = await bench.amend(job.job_id, 10)
    assert read(refined.cut_texts) == READ
    await bench.until(refined.job_id, "succeeded")
    assert read((await bench.job(refined.job_id)).cut_texts) == READ


async def test_an_estimate_foretells_it(bench: Bench) -> None:
    assert await estimated(bench, spec(prompt=LONG)) == READ
    assert await estimated(bench, spec(prompt="one", negative_prompt=LONG)) == [
        ("negative_prompt", *rest) for _, *rest in READ
    ]
    assert await estimated(bench, spec()) == []


async def test_an_estimate_goes_out_without_if_no_encoder_answers(bench: Bench) -> None:
    bench.encoder.gate.close()
    assert await estimated(bench, spec(prompt=LONG)) == []
    await bench.encoder.gate.reached()
    await bench.encoder.drain()
    assert await estimated(bench, spec(prompt=LONG)) == []


async def test_the_next_router_knows_it_still(bench: Bench) -> None:
    job = await bench.submit(spec(prompt=LONG))
    await bench.until(job.job_id, "succeeded")
    await bench.stop_router()
    await bench.start_router()
    assert read((await bench.job(job.job_id)).cut_texts) == READ
