"""`triptych generate`, `submit`, `watch` and `download`: from a prompt to files."""

import argparse
import asyncio
import contextlib
from pathlib import Path
from typing import Any

from triptych.cli.failures import EXIT_BAD_INPUT, EXIT_JOB_FAILED, Failure, error_record
from triptych.cli.files import check_folder, output_path
from triptych.cli.previews import PreviewFiles, add_preview_dir
from triptych.cli.progress import Progress, open_progress
from triptych.cli.remote import router
from triptych.cli.request import add_request_options, build_spec
from triptych.cli.story import cut_words, ending, state_words
from triptych.cli.terminal import Terminal, record
from triptych.cli.values import natural, words
from triptych.client import Client, Media
from triptych.errors import TriptychError, from_status
from triptych.v1 import job_pb2


def register(commands: Any, shared: argparse.ArgumentParser) -> None:
    """Add the commands."""
    generate = commands.add_parser("generate", parents=[shared], help="make pictures and save them")
    add_request_options(generate)
    _add_output(generate)
    add_preview_dir(generate, "the newest alone, beside the output")
    generate.set_defaults(run=run_generate)
    submit = commands.add_parser("submit", parents=[shared], help="hand in a job and leave")
    add_request_options(submit)
    submit.add_argument(
        "--request-id", type=words, metavar="ID", help="repeating the command with it makes no second job"
    )
    submit.set_defaults(run=run_submit)
    watch = commands.add_parser("watch", parents=[shared], help="follow a job's events to their end")
    watch.add_argument("job", type=words, metavar="JOB")
    watch.add_argument("--after", type=natural, default=0, metavar="N", help="leave out the first N events")
    add_preview_dir(watch, "none is kept")
    watch.set_defaults(run=run_watch)
    download = commands.add_parser("download", parents=[shared], help="save a job's outputs")
    download.add_argument("job", type=words, metavar="JOB")
    download.add_argument("--index", type=natural, metavar="N", help="one output alone")
    _add_output(download)
    download.set_defaults(run=run_download)


async def run_generate(args: argparse.Namespace, terminal: Terminal) -> int:
    """Make what the prompt says. Ctrl-C cancels the job."""
    if args.output is not None:
        try:
            check_folder(args.output)
        except OSError as error:
            raise _unwritable(args.output, error) from error
    async with router(args) as client:
        spec = await build_spec(args, client, args.output)
        generation = Generation(client, args.output, args.preview_dir)
        try:
            await generation.run(spec)
        except asyncio.CancelledError:
            return await generation.give_up(terminal)
        return await generation.conclude(terminal)


async def run_submit(args: argparse.Namespace, terminal: Terminal) -> int:
    """Print the id of the job that was accepted."""
    async with router(args) as client:
        spec = await build_spec(args, client)
        job = await client.submit(spec, request_id=args.request_id)
        terminal.say(job.job_id)
        terminal.emit(record(job))
        await _warn_of_cuts(client, spec, terminal)
    if not terminal.as_json:
        terminal.note(f"follow it: triptych watch {job.job_id}")
    return 0


async def run_watch(args: argparse.Namespace, terminal: Terminal) -> int:
    """Follow a job; Ctrl-C leaves it alone."""
    last = job_pb2.JobEvent()
    previews = PreviewFiles(args.job, 1, args.preview_dir) if args.preview_dir is not None else None
    async with router(args) as client:
        with open_progress(args.job) as progress:
            async for item in client.follow(args.job, after_sequence=args.after):
                if isinstance(item, job_pb2.Preview):
                    if previews is not None:
                        _save_preview(item, previews)
                    continue
                last = item
                terminal.emit(record(last))
                if not terminal.as_json:
                    progress.show(last)
        if not terminal.as_json:
            job = await client.job(args.job)
            terminal.say(f"{state_words(job)}: {ending(job)}")
            terminal.warn(cut_words(job.cut_texts))
    return 0 if last.WhichOneof("event") == "succeeded" else EXIT_JOB_FAILED


async def run_download(args: argparse.Namespace, terminal: Terminal) -> int:
    """Save all finished outputs of a job, or one."""
    saved = []
    async with router(args) as client:
        job = await client.job(args.job)
        indices = [output.index for output in job.outputs] if args.index is None else [args.index]
        if not indices:
            raise Failure(f"job {args.job} has no output yet; it is {state_words(job)}", EXIT_BAD_INPUT)
        for index in indices:
            media = await client.download(args.job, index)
            saved.append(_save(media, args.output, args.job, job.spec.output_count))
    for path in saved:
        terminal.say(str(path))
    terminal.emit({"job_id": args.job, "files": [str(path) for path in saved]})
    return 0


class Generation:
    """One `triptych generate`: the job, and the files so far."""

    def __init__(self, client: Client, output: Path | None, preview_dir: Path | None = None) -> None:
        self._client = client
        self._output = output
        self._preview_dir = preview_dir
        self._previews: PreviewFiles | None = None
        self._job: job_pb2.Job | None = None
        self._files: list[Path] = []

    async def run(self, spec: job_pb2.JobSpec) -> None:
        """Submit, show progress, save what comes. Cancelled, it takes the job back."""
        async with contextlib.aclosing(self._client.stream(spec)) as items:
            accepted = await anext(items)
            assert isinstance(accepted, job_pb2.Job), "a stream begins with its job"
            self._job = accepted
            count = accepted.spec.output_count
            self._previews = PreviewFiles(accepted.job_id, count, self._preview_dir, self._output)
            with open_progress(accepted.job_id) as progress:
                async for item in items:
                    self._take(item, progress)

    async def conclude(self, terminal: Terminal) -> int:
        """Say how it ended."""
        assert self._job is not None, "the job has ended"
        job = await self._client.job(self._job.job_id)
        terminal.warn(cut_words(job.cut_texts))
        result: dict[str, Any] = {"job": record(job), "files": [str(path) for path in self._files]}
        if job.state == job_pb2.JOB_STATE_SUCCEEDED:
            for path in self._files:
                terminal.say(str(path))
            terminal.emit(result)
            terminal.note(f"seed {job.spec.seed}; {ending(job)}")
            return 0
        error = from_status(job.error)
        cancelled = job.state == job_pb2.JOB_STATE_CANCELLED
        terminal.note(f"triptych: job {job.job_id} " + ("was cancelled" if cancelled else f"failed: {error.message}"))
        terminal.emit(result if cancelled else {**result, "error": error_record(error)})
        return EXIT_JOB_FAILED

    async def give_up(self, terminal: Terminal) -> int:
        """After Ctrl-C: make sure that the job stops, and say so."""
        if self._job is None:
            terminal.note("triptych: interrupted before the job was accepted")
            return EXIT_JOB_FAILED
        job_id = self._job.job_id
        try:
            job = await self._client.cancel(job_id)
        except TriptychError as error:
            terminal.note(f"triptych: could not cancel job {job_id}: {error.message}; try: triptych cancel {job_id}")
        else:
            terminal.note(f"triptych: interrupted; job {job_id} is {state_words(job)}")
            terminal.emit({"job": record(job), "files": [str(path) for path in self._files]})
        return EXIT_JOB_FAILED

    def _take(self, item: job_pb2.Job | job_pb2.JobEvent | job_pb2.Preview | Media, progress: Progress) -> None:
        if isinstance(item, job_pb2.JobEvent):
            progress.show(item)
        elif isinstance(item, job_pb2.Preview) and self._previews is not None:
            _save_preview(item, self._previews)
        elif isinstance(item, Media) and self._job is not None:
            path = _save(item, self._output, self._job.job_id, self._job.spec.output_count)
            if path not in self._files:  # one that was made again comes again
                self._files.append(path)


async def _warn_of_cuts(client: Client, spec: job_pb2.JobSpec, terminal: Terminal) -> None:
    """Of a job that is encoded later: as foretold. It is accepted, whatever comes of this."""
    with contextlib.suppress(TriptychError):
        terminal.warn(cut_words((await client.estimate(spec)).cut_texts))


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="where to save; several outputs become FILE-0, FILE-1, …"
    )


def _save(media: Media, wanted: Path | None, job_id: str, output_count: int) -> Path:
    path = output_path(wanted, job_id, media, output_count)
    try:
        return media.save(path)
    except OSError as error:
        raise _unwritable(path, error) from error


def _save_preview(preview: job_pb2.Preview, files: PreviewFiles) -> None:
    try:
        files.save(preview)
    except OSError as error:
        raise Failure(f"cannot write a preview: {error}", EXIT_BAD_INPUT) from error


def _unwritable(path: Path, error: OSError) -> Failure:
    return Failure(f"cannot write {path}: {error.strerror or error}", EXIT_BAD_INPUT)
