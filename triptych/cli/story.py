"""A job's events as a person reads them: a sentence for each, and one gauge for the whole job."""

from collections.abc import Iterable

from triptych.cli.terminal import enum_word, seconds, stage_word
from triptych.durations import seconds_of
from triptych.v1 import job_pb2

_DOING = {
    job_pb2.STAGE_ENCODE: "encoding",
    job_pb2.STAGE_DENOISE: "denoising",
    job_pb2.STAGE_DECODE: "decoding",
}


def sentence(event: job_pb2.JobEvent) -> str:
    """What an event says."""
    kind = event.WhichOneof("event")
    if kind == "queued":
        return f"queued in pool {event.queued.pool}, {seconds(estimate_s(event.queued.estimate))} of work"
    if kind == "encoded":
        return "prompt encoded" + (" before: found in the cache" if event.encoded.cached else "")
    if kind == "stage_started":
        started = event.stage_started
        return f"{_DOING.get(started.stage, 'running')} on {started.worker_id}"
    if kind == "progress":
        return progress_words(event.progress)
    if kind == "output":
        return f"output {event.output.index} is ready"
    if kind == "requeued":
        return f"back in the queue: {event.requeued.reason}"
    if kind == "amended":
        words = f"{event.amended.step_count} steps, {seconds(estimate_s(event.amended.estimate))} of work in all"
        return f"finishes now: {words}" if event.amended.amendment.HasField("finish_now") else f"amended: {words}"
    if kind == "restart_only":
        return f"would start again after a crash: {event.restart_only.reason}"
    if kind == "paused":
        return "paused: better-ranked work has the device"
    if kind == "failed":
        return f"failed: {event.failed.error.message}"
    return kind or ""


def progress_words(progress: job_pb2.Progress) -> str:
    """Stage and step."""
    words = f"{_DOING.get(progress.stage, 'running')} {progress.step}/{progress.step_count}"
    return words if progress.output_index == 0 else f"{words} of output {progress.output_index}"


def ending(job: job_pb2.Job) -> str:
    """A finished job's time per stage."""
    parts = [
        ("encode", seconds_of(job.encode_time)),
        ("denoise", seconds_of(job.denoise_time)),
        ("decode", seconds_of(job.decode_time)),
    ]
    cached = " (cached)" if job.conditioning_cached else ""
    return ", ".join(f"{name} {seconds(value)}{cached if name == 'encode' else ''}" for name, value in parts)


def cut_words(readings: Iterable[job_pb2.TextReading]) -> list[str]:
    """A warning for each text that was cut: how much of it was read, and whether some tokenizer read all of it."""
    read = list(readings)
    said = []
    for each in read:
        if each.token_count > each.token_limit:
            whole = [other.tokenizer for other in read if other.field == each.field and _is_whole(other)]
            words = f"warning: {each.field} is too long: {each.tokenizer} reads {each.token_limit} of its"
            said.append(f"{words} {each.token_count} tokens" + (f", {' and '.join(whole)} all" if whole else ""))
    return said


def _is_whole(reading: job_pb2.TextReading) -> bool:
    return reading.token_count <= reading.token_limit


def state_words(job: job_pb2.Job) -> str:
    """A job's state, and its stage while it has one."""
    state, stage = enum_word(job_pb2.JobState.Name(job.state)), stage_word(job.stage)
    doing = "paused" if job.paused else stage
    return f"{state} ({doing})" if doing and job.state in (1, 2) else state


def estimate_s(estimate: job_pb2.Estimate) -> float:
    """Seconds over all stages."""
    return seconds_of(estimate.total)


class Gauge:
    """How far a job is over all its stages, each weighing what it was estimated to take.

    0 to 1, falling only when the job begins again or has been given more to do.
    """

    def __init__(self) -> None:
        self.fraction = 0.0
        self.words = "waiting"
        # The next steps are a part of another whole.
        self._grown = False
        self._shares = {job_pb2.STAGE_ENCODE: 0.05, job_pb2.STAGE_DENOISE: 0.85, job_pb2.STAGE_DECODE: 0.1}

    def take(self, event: job_pb2.JobEvent) -> None:
        """Read one event."""
        kind = event.WhichOneof("event")
        self.words = sentence(event)
        if kind == "queued" and estimate_s(event.queued.estimate) > 0:
            self._weigh(event.queued.estimate)
        elif kind == "amended":
            self._weigh(event.amended.estimate)
            self._grown = True
        elif kind == "encoded":
            self._reach(self._shares[job_pb2.STAGE_ENCODE])
        elif kind == "stage_started":
            self._reach(self._before(event.stage_started.stage))
        elif kind == "progress":
            stage = event.progress.stage
            if self._grown and stage == job_pb2.STAGE_DENOISE:
                self.fraction, self._grown = 0.0, False
            self._reach(self._before(stage) + self._shares.get(stage, 0.0) * event.progress.fraction)
        elif kind == "succeeded":
            self._reach(1.0)
        elif kind == "requeued":
            self.fraction = 0.0

    def _weigh(self, estimate: job_pb2.Estimate) -> None:
        parts = (estimate.encode, estimate.denoise, estimate.decode)
        total = sum(part.ToNanoseconds() for part in parts)
        if total > 0:
            self._shares = {
                stage: part.ToNanoseconds() / total for stage, part in zip(self._shares, parts, strict=True)
            }

    def _before(self, stage: job_pb2.Stage.ValueType) -> float:
        return sum(share for earlier, share in self._shares.items() if earlier < stage)

    def _reach(self, fraction: float) -> None:
        self.fraction = min(1.0, max(self.fraction, fraction))
