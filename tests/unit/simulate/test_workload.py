"""Where jobs come from: files, traces, generators."""

import gzip
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean

import pytest

from services.router.simulate.generator import Arrivals, generate, parse_mix
from services.router.simulate.gentd26 import read_trace
from services.router.simulate.requests import REQUESTS
from services.router.simulate.workload import WorkloadError, read_workload, scale_to_load
from tests.unit.simulate.jobs import mixed

HEADER = (
    "gmt_create,predict_type,predict_status,exec_time_seconds,groupId,prompt_length,negative_prompt_length,"
    "num_images_per_prompt,num_inference_steps,checkpoint_model_version_id,num_lora\n"
)
ROWS = (
    "2024-01-01 10:00:05,TXT_2_IMG,SUCCEED,20.0,u2,12.0,,1.0,30.0,m1,0\n"
    "2024-01-01 10:00:00,IMG_2_IMG,SUCCEED,40.0,u1,,3.0,4.0,40.0,,2\n"
    "2024-01-01 10:00:01,TXT_2_IMG,FAILED,9.0,u1,12.0,,1.0,30.0,m1,0\n"
)


def test_a_workload_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    path.write_text(
        '{"arrival_s": 1, "kind": "image", "service_s": 2.5}\n\n'
        '{"arrival_s": 2, "kind": "video", "service_s": 60, "tenant": "t", "model": "wan", "deadline_s": 90, '
        '"encode_s": 1, "decode_s": 4}\n'
    )
    first, second = read_workload(path)
    assert (first.kind, first.model, first.service_s, first.tenant) == ("image", "image", 2.5, "default")
    assert (second.model, second.tenant, second.deadline_s, second.service_s) == ("wan", "t", 90.0, 65.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no jobs"),
        ("{", "line 1"),
        ("[1]", "line 1: is not an object"),
        ('{"arrival_s": 1, "kind": "image"}', "line 1: 'service_s' is missing"),
        ('{"arrival_s": -1, "kind": "image", "service_s": 2}', "line 1: arrival_s is -1.0"),
        ('{"arrival_s": 1, "kind": "image", "service_s": -2}', "line 1: not seconds"),
        ('{"arrival_s": 1, "kind": "image", "service_s": 2, "size": 3}', "line 1: unknown size; known: arrival_s"),
    ],
)
def test_a_bad_workload_is_refused_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "jobs.jsonl"
    path.write_text(text)
    with pytest.raises(WorkloadError, match=words):
        read_workload(path)
    with pytest.raises(WorkloadError, match="cannot read"):
        read_workload(tmp_path / "none.jsonl")


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_a_trace(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress((HEADER + ROWS).encode()) if name.endswith("gz") else (HEADER + ROWS).encode())
    first, second = read_trace(path)
    assert [(job.arrival_s, job.service_s, job.kind) for job in (first, second)] == [
        (0.0, 40.0, "img_2_img"),
        (5.0, 20.0, "txt_2_img"),
    ]
    assert (first.tenant, first.model, second.model) == ("u1", "unnamed", "m1")
    assert first.request is not None
    assert (first.request.prompt_length, first.request.image_count, first.request.lora_count) == (0.0, 4.0, 2.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEADER, "has no request that succeeded"),
        ("a,b\n1,2\n", "has no column gmt_create"),
        (HEADER + ROWS.replace("20.0", "soon"), "line 2"),
        (HEADER + ROWS.replace("20.0", "0"), "line 2: exec_time_seconds is 0"),
        (HEADER + "2024-01-01 10:00:05,TXT_2_IMG,SUCCEED\n", "line 2"),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(WorkloadError, match=words):
        read_trace(path)


def test_time_is_stretched_to_a_load() -> None:
    jobs = scale_to_load(mixed(), 0.5, 4)
    assert sum(job.service_s for job in jobs) / 4 / max(job.arrival_s for job in jobs) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="makes no sense"):
        scale_to_load(jobs, 0.0, 4)
    with pytest.raises(WorkloadError, match="all jobs arrive at once"):
        scale_to_load(jobs[:1], 0.5, 4)


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_made_up_jobs_come_at_the_rate_and_in_the_mix(factor: float) -> None:
    mix = parse_mix("image:2/4=3,wan-480p=1")
    jobs = generate(Arrivals(2.0, factor, burst_s=10.0), mix, 4000, Random(7))
    assert len(jobs) / jobs[-1].arrival_s == pytest.approx(2.0, rel=0.15)
    images = [job for job in jobs if job.kind == "image"]
    assert len(images) / len(jobs) == pytest.approx(0.75, abs=0.03)
    assert fmean(job.service_s for job in images) == pytest.approx(3.0, abs=0.1)
    assert {job.seconds for job in jobs if job.kind == "wan-480p"} == {REQUESTS["wan-480p"]}
    assert jobs == generate(Arrivals(2.0, factor, burst_s=10.0), mix, 4000, Random(7))


def test_bursts_are_bursts() -> None:
    def crowded(factor: float) -> int:
        times = [job.arrival_s for job in generate(Arrivals(1.0, factor), parse_mix("a:1"), 2000, Random(1))]
        return sum(later - earlier < 0.2 for earlier, later in pairwise(times))

    assert crowded(8.0) > 2 * crowded(1.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("image", "no request is called 'image'; known: sdxl-512"),
        ("image:x", "is not KIND:SECONDS"),
        ("image:2=0", "must be above 0"),
        ("image:-2", "is not KIND:SECONDS"),
    ],
)
def test_a_bad_mix_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_mix(text)
