"""What the proof programs are as commands: options as flags, figures as text or JSON, a verdict as exit status."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bench.program import Figures, awaited, options_of, tell
from bench.trial.scene import scene_folder
from triptych.logs import configure_logs

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_HELP = "help"


def option(default: Any, text: str) -> Any:
    """A field that is a flag too: "long_steps" is `--long-steps`, of its default's type."""
    return field(default=default, metadata={_HELP: text})


@dataclass(frozen=True)
class TrialOptions:
    """What every trial is told."""

    seed: int = option(1, "of all that is drawn")
    customers: int = option(4, "with short orders")
    long_customers: int = option(1, "with long orders")
    long_steps: int = option(800, "of each output of a long job")
    pace_s: float = option(0.0, "from a customer's short order to its next, at least")
    long_pace_s: float = option(0.0, "from a customer's long order to its next, at least")
    settle_s: float = option(600.0, "bound of the wait at the end")


_Options = TypeVar("_Options", bound="DataclassInstance")


def main(text: str | None, kind: type[_Options], prove: Callable[[Path, _Options], Awaitable[Figures]]) -> None:
    """Run a proof program in a folder, print its figures; exits with 1 if "sound" is false among them.

    Each field of `kind` that is an `option` is a flag; others are for those who call `prove` themselves.
    """
    parser = options_of(text)
    parser.add_argument("--keep", type=Path, help="folder for models, logs and stores, which then stay")
    for each in fields(kind):
        if _HELP in each.metadata:
            flag = f"--{each.name.replace('_', '-')}"
            told = f"{each.metadata[_HELP]} (default {each.default})"
            parser.add_argument(flag, type=type(each.default), default=each.default, help=told)
    settings = vars(parser.parse_args())
    configure_logs("error")
    as_json, keep = settings.pop("json"), settings.pop("keep")
    with scene_folder(keep) as folder:
        figures = asyncio.run(awaited(prove(folder, kind(**settings))))
    tell(figures, as_json)
    # None: it could not be tried.
    sys.exit(figures["sound"] is False)
