"""What benchmarks and proofs are as commands: options in, figures out as lines or as one JSON object."""

import argparse
import json
from collections.abc import Mapping


def options_of(text: str | None) -> argparse.ArgumentParser:
    """A parser with `--json`, to which a program adds its own options. `text` is its docstring."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def tell(figures: Mapping[str, object], as_json: bool) -> None:
    """Print the figures."""
    print(json.dumps(figures) if as_json else "\n".join(f"{name:26} {value}" for name, value in figures.items()))
