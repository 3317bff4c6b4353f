"""What a person reads of a job: sentences, the gauge, names of files, tables."""

import json
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration

from triptych.cli.files import check_folder, output_path
from triptych.cli.progress import LineProgress
from triptych.cli.story import Gauge, cut_words, sentence
from triptych.cli.terminal import Terminal, record, seconds
from triptych.client import Media
from triptych.v1 import job_pb2


def estimate() -> job_pb2.Estimate:
    return job_pb2.Estimate(
        total=Duration(seconds=10), encode=Duration(seconds=1), denoise=Duration(seconds=8), decode=Duration(seconds=1)
    )


def progress(stage: job_pb2.Stage.ValueType, step: int, fraction: float) -> job_pb2.JobEvent:
    return job_pb2.JobEvent(progress=job_pb2.Progress(stage=stage, step=step, step_count=20, fraction=fraction))


def test_the_gauge_weighs_stages_by_their_estimate_and_never_falls() -> None:
    gauge = Gauge()
    seen = []
    for event in (
        job_pb2.JobEvent(queued=job_pb2.JobQueued(estimate=estimate(), pool="default")),
        job_pb2.JobEvent(encoded=job_pb2.JobEncoded()),
        job_pb2.JobEvent(stage_started=job_pb2.StageStarted(stage=job_pb2.STAGE_DENOISE, worker_id="d")),
        progress(job_pb2.STAGE_DENOISE, 10, 0.5),
        progress(job_pb2.STAGE_DENOISE, 9, 0.45),
        job_pb2.JobEvent(stage_started=job_pb2.StageStarted(stage=job_pb2.STAGE_DECODE, worker_id="d")),
        job_pb2.JobEvent(succeeded=job_pb2.JobSucceeded()),
    ):
        gauge.take(event)
        seen.append(gauge.fraction)
    assert seen == pytest.approx([0.0, 0.1, 0.1, 0.5, 0.5, 0.9, 1.0])


def test_sentences() -> None:
    assert sentence(progress(job_pb2.STAGE_DENOISE, 3, 0.1)) == "denoising 3/20"
    queued = job_pb2.JobEvent(queued=job_pb2.JobQueued(estimate=estimate(), pool="short"))
    assert sentence(queued) == "queued in pool short, 10.0 s of work"
    assert sentence(job_pb2.JobEvent(requeued=job_pb2.JobRequeued(reason="worker lost"))) == (
        "back in the queue: worker lost"
    )
    assert sentence(job_pb2.JobEvent(succeeded=job_pb2.JobSucceeded())) == "succeeded"


def test_lines_come_once_a_quarter(capsys: pytest.CaptureFixture[str]) -> None:
    with LineProgress("job-1") as lines:
        for step in range(1, 21):
            lines.show(progress(job_pb2.STAGE_DENOISE, step, step / 20))
    told = capsys.readouterr().err.splitlines()
    assert [line.split()[-1] for line in told] == ["1/20", "5/20", "10/20", "15/20", "20/20"]
    assert all(line.startswith("job-1: ") for line in told)


@pytest.mark.parametrize(
    ("wanted", "count", "expected"),
    [
        ("out.png", 1, "out.png"),
        ("out.png", 3, "out-2.png"),
        ("out", 1, "out.webp"),
        ("deep/out", 2, "deep/out-2.webp"),
        (None, 1, "job.webp"),
        (None, 4, "job-2.webp"),
    ],
)
def test_names_of_files(
    wanted: str | None, count: int, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    media = Media(job_pb2.Output(index=2, media_type="image/webp"), b"")
    assert output_path(Path(wanted) if wanted else None, "job", media, count) == Path(expected)


def test_a_folder_takes_a_file_of_the_jobs_name(tmp_path: Path) -> None:
    media = Media(job_pb2.Output(media_type="video/mp4"), b"film")
    path = output_path(tmp_path, "job", media, 1)
    assert media.save(path) == tmp_path / "job.mp4"
    assert [entry.name for entry in tmp_path.iterdir()] == ["job.mp4"]


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0, "0 ms"), (0.35, "350 ms"), (0.9996, "1.0 s"), (4.24, "4.2 s"), (99.96, "1 min 40 s"), (185, "3 min 05 s")],
)
def test_seconds(value: float, words: str) -> None:
    assert seconds(value) == words


def test_tables_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal(as_json=False).table(("A", "LONGER"), [("xyz", ""), ("", "1")])
    assert capsys.readouterr().out.splitlines() == ["A    LONGER", "xyz  -", "-    1"]


def test_attachments_stay_out_of_json() -> None:
    job = job_pb2.Job(spec=job_pb2.JobSpec(attachments=[job_pb2.Attachment(media_type="image/png", data=b"xx")]))
    assert record(job)["spec"]["attachments"][0]["data"] == ""
    assert job.spec.attachments[0].data == b"xx"


def test_where_nothing_can_be_written_is_known_before(tmp_path: Path) -> None:
    check_folder(tmp_path)
    check_folder(tmp_path / "new" / "picture.png")
    check_folder(Path("picture.png"))
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        check_folder(tmp_path / "file" / "new" / "picture.png")


def test_a_gauge_follows_a_job_that_is_given_more_to_do() -> None:
    gauge = Gauge()
    gauge.take(event(queued=job_pb2.JobQueued(estimate=work(8))))
    gauge.take(event(progress=job_pb2.Progress(stage=job_pb2.STAGE_DENOISE, step=6, step_count=8, fraction=0.75)))
    assert gauge.fraction == 0.75
    more = job_pb2.JobAmended(amendment=job_pb2.Amendment(step_count=24), step_count=24, estimate=work(24))
    gauge.take(event(amended=more))
    assert gauge.words == "amended: 24 steps, 24.0 s of work in all"
    assert gauge.fraction == 0.75
    gauge.take(event(progress=job_pb2.Progress(stage=job_pb2.STAGE_DENOISE, step=7, step_count=24, fraction=7 / 24)))
    assert gauge.fraction == 7 / 24
    now = job_pb2.JobAmended(amendment=job_pb2.Amendment(finish_now=job_pb2.FinishNow()), step_count=8)
    gauge.take(event(amended=now))
    assert gauge.words.startswith("finishes now: 8 steps")
    gauge.take(event(progress=job_pb2.Progress(stage=job_pb2.STAGE_DENOISE, step=8, step_count=8, fraction=1.0)))
    assert gauge.fraction == 1.0


def event(**kind: object) -> job_pb2.JobEvent:
    return job_pb2.JobEvent(**kind)  # type: ignore[arg-type]


def work(denoise_s: int) -> job_pb2.Estimate:
    return job_pb2.Estimate(total=Duration(seconds=denoise_s), denoise=Duration(seconds=denoise_s))


STEERING = "a\x1b[2Jb\x9b31mc\x07d\u202ee\rf"
SHOWN = r"a\u001b[2Jb\u009b31mc\u0007d\u202ee\u000df"


def test_what_others_wrote_does_not_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(as_json=False)
    terminal.say(f"{STEERING}\n\tand on")
    terminal.note(STEERING)
    terminal.table(("PROMPT",), [(STEERING,)])
    LineProgress("j").show(job_pb2.JobEvent(queued=job_pb2.JobQueued(estimate=estimate(), pool=STEERING)))
    Terminal(as_json=True).emit({"prompt": STEERING})
    told = capsys.readouterr()
    assert told.out.splitlines()[:4] == [SHOWN, "\tand on", "PROMPT", SHOWN]
    assert json.loads(told.out.splitlines()[4]) == {"prompt": STEERING}
    assert told.err.splitlines()[0] == SHOWN
    assert not set(STEERING) & {each for each in told.out + told.err if not each.isprintable()}


def test_a_text_that_was_cut() -> None:
    read = [
        job_pb2.TextReading(field="prompt", tokenizer="tokenizer", token_count=90, token_limit=77),
        job_pb2.TextReading(field="prompt", tokenizer="tokenizer_2", token_count=91, token_limit=512),
        job_pb2.TextReading(field="negative_prompt", tokenizer="tokenizer", token_count=78, token_limit=77),
        job_pb2.TextReading(field="negative_prompt", tokenizer="tokenizer_2", token_count=600, token_limit=512),
    ]
    assert cut_words(read) == [
        "warning: prompt is too long: tokenizer reads 77 of its 90 tokens, tokenizer_2 all",
        "warning: negative_prompt is too long: tokenizer reads 77 of its 78 tokens",
        "warning: negative_prompt is too long: tokenizer_2 reads 512 of its 600 tokens",
    ]
