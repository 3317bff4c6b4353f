"""What benchmarks and proofs are as commands: options in, progress beside them, figures out as lines or as JSON."""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

Figures = Mapping[str, object]


def options_of(text: str | None) -> argparse.ArgumentParser:
    """A parser with `--json`, to which a program adds its own options. `text` is its docstring."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def main(text: str | None, run: Callable[[Path], Awaitable[Figures]]) -> None:
    """The whole of a program without options of its own; it runs in a folder that goes away at the end."""
    options = options_of(text).parse_args()
    with bench_folder() as folder:
        tell(asyncio.run(awaited(run(folder))), options.json)


@contextmanager
def bench_folder() -> Iterator[Path]:
    """A folder that goes away at the end."""
    with tempfile.TemporaryDirectory(prefix="triptych-bench-") as name:
        yield Path(name)


async def awaited(figures: Awaitable[Figures]) -> Figures:
    """As a coroutine, which is what `asyncio.run` takes."""
    return await figures


def tell(figures: Figures, as_json: bool) -> None:
    """Print the figures."""
    print(json.dumps(figures) if as_json else "\n".join(f"{name:26} {value}" for name, value in figures.items()))


def note(line: str) -> None:
    """Progress, for a person: on standard error."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)
