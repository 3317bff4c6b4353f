"""Previews on the command line: how often, how large, and what they are called on disk."""

import argparse
from pathlib import Path

from triptych.cli.failures import EXIT_BAD_INPUT, Failure
from triptych.cli.values import positive
from triptych.client import replace_file
from triptych.durations import duration_of
from triptych.v1 import job_pb2


def add_preview_options(parser: argparse.ArgumentParser) -> None:
    """What a job's preview policy is made of."""
    often = parser.add_mutually_exclusive_group()
    often.add_argument("--preview-every", type=float, metavar="SECONDS", help="a preview so often, 0.1 s or more")
    often.add_argument("--preview-every-steps", type=positive, metavar="N", help="a preview after every N steps")
    parser.add_argument(
        "--preview-size", type=positive, metavar="PIXELS", help="longer side of a preview, 32 to 1024 (default: 256)"
    )


def add_preview_dir(parser: argparse.ArgumentParser, otherwise: str) -> None:
    """Where to keep all of them; `otherwise` says what happens without."""
    parser.add_argument(
        "--preview-dir", type=Path, metavar="DIR", help=f"keep each preview here, by its step (otherwise {otherwise})"
    )


def preview_policy(args: argparse.Namespace) -> job_pb2.PreviewPolicy | None:
    """The policy that the options ask for; None if they ask for no previews. Raises `Failure`."""
    if args.preview_every is None and args.preview_every_steps is None:
        if args.preview_size is not None or getattr(args, "preview_dir", None) is not None:
            raise Failure("how often? say --preview-every SECONDS or --preview-every-steps N", EXIT_BAD_INPUT)
        return None
    policy = job_pb2.PreviewPolicy(every_steps=args.preview_every_steps, max_side=args.preview_size or 0)
    if args.preview_every is not None:
        if not 0 < args.preview_every <= 1e9:
            raise Failure(f"--preview-every: {args.preview_every:g} is no number of seconds", EXIT_BAD_INPUT)
        policy.every_time.CopyFrom(duration_of(args.preview_every))
    return policy


class PreviewFiles:
    """Saves the previews of one job: all of them in `folder`, else the newest of each output beside `output`."""

    def __init__(self, job: str, output_count: int, folder: Path | None, output: Path | None = None) -> None:
        self._job = job
        self._output_count = output_count
        self._folder = folder
        self._output = output

    def save(self, preview: job_pb2.Preview) -> Path:
        """Write the file in one step, in place of an earlier one of that name. Raises `OSError`."""
        return replace_file(self._path(preview), preview.data)

    def _path(self, preview: job_pb2.Preview) -> Path:
        if self._folder is not None:
            return self._folder / f"{self._job}-{preview.output_index}-{preview.step:04}.webp"
        beside = self._output or Path(self._job)
        if beside.is_dir():
            beside = beside / self._job
        index = f"-{preview.output_index}" if self._output_count > 1 else ""
        return beside.with_name(f"{beside.stem}{index}.preview.webp")
