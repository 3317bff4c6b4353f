"""`triptych jobs`, `amend`, `cancel` and `estimate`."""

import argparse
from datetime import UTC
from typing import Any

from triptych.cli.remote import router
from triptych.cli.request import add_request_options, build_spec
from triptych.cli.story import cut_words, estimate_s, state_words
from triptych.cli.terminal import Terminal, record, seconds
from triptych.cli.values import positive, words
from triptych.durations import seconds_of
from triptych.v1 import job_pb2, router_service_pb2

PROMPT_CHARACTERS = 40
STATES = {
    "queued": job_pb2.JOB_STATE_QUEUED,
    "running": job_pb2.JOB_STATE_RUNNING,
    "succeeded": job_pb2.JOB_STATE_SUCCEEDED,
    "failed": job_pb2.JOB_STATE_FAILED,
    "cancelled": job_pb2.JOB_STATE_CANCELLED,
}


def register(commands: Any, shared: argparse.ArgumentParser) -> None:
    """Add the commands."""
    jobs = commands.add_parser("jobs", parents=[shared], help="list jobs, newest first")
    jobs.add_argument("--state", action="append", default=[], choices=list(STATES), help="jobs of this state alone")
    jobs.add_argument("--limit", type=positive, default=20, metavar="N", help="at most so many (default 20)")
    jobs.set_defaults(run=run_jobs)
    cancel = commands.add_parser("cancel", parents=[shared], help="stop jobs for good")
    cancel.add_argument("job", type=words, nargs="+", metavar="JOB")
    cancel.set_defaults(run=run_cancel)
    amend = commands.add_parser(
        "amend",
        parents=[shared],
        help="change a job: more steps, fewer, or finish now",
        description="Change a job. More steps for a finished one make a new job that goes on from it.",
    )
    amend.add_argument("job", type=words, metavar="JOB")
    change = amend.add_mutually_exclusive_group(required=True)
    change.add_argument("--finish-now", action="store_true", help="take what each output has now as its result")
    change.add_argument("--steps", type=positive, metavar="N", help="run N steps in all")
    change.add_argument("--more", type=positive, metavar="N", help="run N steps more than it would")
    amend.set_defaults(run=run_amend)
    estimate = commands.add_parser("estimate", parents=[shared], help="price a job without running it")
    add_request_options(estimate)
    estimate.set_defaults(run=run_estimate)


async def run_jobs(args: argparse.Namespace, terminal: Terminal) -> int:
    """List jobs."""
    async with router(args) as client:
        jobs = await client.jobs(states=[STATES[name] for name in args.state], limit=args.limit)
    terminal.emit([record(job) for job in jobs])
    terminal.table(
        ("JOB", "STATE", "MODEL", "ESTIMATE", "CREATED", "PROMPT"),
        [
            (
                job.job_id,
                _state(job),
                job.spec.model,
                seconds(estimate_s(job.estimate)),
                job.create_time.ToDatetime(UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S"),
                _short(job.spec.prompt),
            )
            for job in jobs
        ],
    )
    return 0


async def run_cancel(args: argparse.Namespace, terminal: Terminal) -> int:
    """Stop jobs, and say what each has become."""
    async with router(args) as client:
        jobs = [await client.cancel(job_id) for job_id in args.job]
    for job in jobs:
        terminal.say(f"{job.job_id}: {state_words(job)}")
    terminal.emit([record(job) for job in jobs])
    return 0


async def run_amend(args: argparse.Namespace, terminal: Terminal) -> int:
    """Change a job, and say what has become of it."""
    async with router(args) as client:
        before = await client.job(args.job)
        steps = before.spec.step_count + args.more if args.more else args.steps
        job = await client.amend(args.job, step_count=steps, finish_now=args.finish_now)
    terminal.emit(record(job))
    terminal.say(_amended(before, job, finish_now=args.finish_now))
    return 0


async def run_estimate(args: argparse.Namespace, terminal: Terminal) -> int:
    """Print seconds per stage, the pool and the verdict."""
    async with router(args) as client:
        answer = await client.estimate(await build_spec(args, client))
    terminal.emit(record(answer))
    terminal.warn(cut_words(answer.cut_texts))
    estimate = answer.estimate
    for name, part in (("encode", estimate.encode), ("denoise", estimate.denoise), ("decode", estimate.decode)):
        terminal.say(f"{name:<8} {seconds(seconds_of(part))}")
    terminal.say(f"{'total':<8} {seconds(estimate_s(estimate))} for {estimate.forward_count} forwards")
    terminal.say(f"{'size':<8} {answer.width}x{answer.height}")
    terminal.say(f"{'pool':<8} {answer.verdict.pool or '-'}")
    terminal.say(f"{'start':<8} in {seconds(seconds_of(answer.verdict.wait))}")
    terminal.say(f"{'verdict':<8} {_verdict(answer.verdict)}")
    return 0


def _amended(before: job_pb2.Job, job: job_pb2.Job, *, finish_now: bool) -> str:
    was, steps = before.spec.step_count, job.spec.step_count
    if job.job_id != before.job_id:
        price = seconds(estimate_s(job.estimate))
        return f"{job.job_id}: goes on from {before.job_id}, from step {was} to {steps}, {price} of work"
    if job.state == job_pb2.JOB_STATE_SUCCEEDED:
        return f"{job.job_id}: {state_words(job)}, with {steps} steps"
    if finish_now:
        return f"{job.job_id}: finishes now, with {steps} of {was} steps"
    price = f"{seconds(estimate_s(job.estimate))} of work instead of {seconds(estimate_s(before.estimate))}"
    return f"{job.job_id}: {steps} steps instead of {was}, {price}"


def _verdict(verdict: router_service_pb2.Verdict) -> str:
    backlog = f"{seconds(seconds_of(verdict.backlog))} of work ahead"
    if verdict.admitted:
        return f"would be taken now, {backlog}"
    limit = f"limit {seconds(seconds_of(verdict.limit))}"
    words = f"would be refused ({verdict.reason}): {backlog}, {limit}"
    if verdict.HasField("retry_after"):
        words += f"; try again in {seconds(seconds_of(verdict.retry_after))}"
    return words


def _state(job: job_pb2.Job) -> str:
    words = state_words(job)
    return f"{words} {job.progress.fraction:.0%}" if job.state == job_pb2.JOB_STATE_RUNNING else words


def _short(prompt: str) -> str:
    line = " ".join(prompt.split())
    return line if len(line) <= PROMPT_CHARACTERS else f"{line[: PROMPT_CHARACTERS - 1]}…"
