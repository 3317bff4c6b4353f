"""`triptych demo`: a whole suite, one picture, and nothing left behind."""

import argparse
import asyncio
import contextlib
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from triptych.cli.failures import EXIT_JOB_FAILED, Failure
from triptych.cli.progress import open_progress
from triptych.cli.startup import Startup
from triptych.cli.suite_options import add_suite_options, suite_config
from triptych.cli.terminal import Terminal, record, seconds
from triptych.cli.values import seed, words
from triptych.client import Client, Media
from triptych.durations import seconds_of
from triptych.endings import raise_if_failed
from triptych.v1 import job_pb2, router_service_pb2

PROMPT = "a large red circle left of a small blue star on a white background"
NEXT_PROMPT = "a medium yellow triangle above a large purple cross on a black background"
SEED = 7


def register(commands: Any, shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    demo = commands.add_parser("demo", parents=[shared], help="start a suite, make a picture, stop")
    demo.add_argument("--prompt", type=words, metavar="TEXT", default=PROMPT, help=f"what to make (default: {PROMPT})")
    demo.add_argument("--model", type=words, metavar="NAME", help="model from the catalog (default: its first)")
    demo.add_argument("--seed", type=seed, default=SEED, metavar="N", help=f"default {SEED}")
    demo.add_argument("-o", "--output", type=Path, default=Path("out/demo.png"), metavar="FILE")
    add_suite_options(demo)
    demo.set_defaults(run=run_demo)


async def run_demo(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show that everything works, and how long each part takes."""
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    demo = Demo(args, terminal)
    with tempfile.TemporaryDirectory(prefix="triptych-demo-") as folder:
        await demo.run(Path(folder))
    demo.tell()
    return 0


class Demo:
    """One run: what was made, and the times."""

    def __init__(self, args: argparse.Namespace, terminal: Terminal) -> None:
        self._args = args
        self._terminal = terminal
        self._startup = Startup(terminal)
        self._start_s = 0.0
        self._picture_s = 0.0
        self._job = job_pb2.Job()
        self._path = Path()

    async def run(self, state_dir: Path) -> None:
        """Start, make the picture, stop. Raises `Failure` and `TriptychError`."""
        config = suite_config(self._args, state_dir=state_dir, listen="127.0.0.1:0")
        from triptych.supervisor import Suite, SuiteError

        suite = Suite(config, on_change=lambda service: self._startup.show(*service.snapshot()))
        self._startup.open_spinner()
        try:
            async with suite:
                self._startup.close_spinner()
                self._start_s = self._startup.elapsed_s
                await self._make(suite.address)
                self._picture_s = self._startup.elapsed_s - self._start_s
        except (SuiteError, OSError) as error:
            raise Failure(f"the suite could not be started: {error}", EXIT_JOB_FAILED) from error
        finally:
            self._startup.close_spinner()

    def tell(self) -> None:
        """The times, the picture and what to do next."""
        job, say = self._job, self._terminal.say
        device_s = {
            "encode": seconds_of(job.encode_time),
            "denoise": seconds_of(job.denoise_time),
            "decode": seconds_of(job.decode_time),
        }
        say(f"start    {seconds(self._start_s)}")
        for stage, spent_s in device_s.items():
            say(f"{stage:<8} {seconds(spent_s)}" + (f", {job.spec.step_count} steps" if stage == "denoise" else ""))
        say(f"picture  {seconds(self._picture_s)} from request to file")
        say(f"total    {seconds(self._startup.elapsed_s)}, everything stopped again")
        say(f"\n{self._path}: {job.spec.prompt}\n")
        say(f'Keep a suite running with `triptych up`, then: triptych generate "{NEXT_PROMPT}" -o next.png')
        self._terminal.emit(
            {
                "file": str(self._path),
                "job": record(job),
                "start_s": self._start_s,
                **{f"{stage}_s": spent_s for stage, spent_s in device_s.items()},
                "picture_s": self._picture_s,
                "total_s": self._startup.elapsed_s,
            }
        )

    async def _make(self, address: str) -> None:
        async with Client(address) as client:
            model = self._args.model or _first_served(await client.models())
            spec = job_pb2.JobSpec(model=model, prompt=self._args.prompt, seed=self._args.seed)
            async with contextlib.aclosing(client.stream(spec)) as items:
                accepted = await anext(items)
                assert isinstance(accepted, job_pb2.Job), "a stream begins with its job"
                with open_progress(accepted.job_id) as progress:
                    async for item in items:
                        if isinstance(item, Media):
                            self._path = item.save(self._args.output)
                        elif isinstance(item, job_pb2.JobEvent):
                            progress.show(item)
                            raise_if_failed(item)
            self._job = await client.job(accepted.job_id)


def _first_served(models: Sequence[router_service_pb2.Model]) -> str:
    return next((model.name for model in models if not model.refusals), models[0].name)
