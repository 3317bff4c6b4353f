"""Entry point of the `triptych` command."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from triptych.cli.arguments import build_parser
from triptych.cli.failures import EXIT_INTERRUPTED, EXIT_UNWRITABLE, Failure, report
from triptych.cli.terminal import Terminal, Unwritable, flush_results, note
from triptych.errors import TriptychError
from triptych.streams import fit_streams, nowhere


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code: 0 ok, 1 job failed, 2 bad input, 3 unreachable, 4 refused."""
    fit_streams()
    try:
        try:
            return _run(sys.argv[1:] if arguments is None else list(arguments))
        finally:
            flush_results()
    except BrokenPipeError:
        # The reader has seen enough (`| head`). Python flushes stdout once more at exit, which would complain.
        sys.stdout = nowhere()
        return 0
    except Unwritable as error:
        note(f"triptych: {error}")
        return EXIT_UNWRITABLE


def _run(arguments: list[str]) -> int:
    args = build_parser().parse_args(arguments, argparse.Namespace(arguments=arguments))
    terminal = Terminal(as_json=args.json)
    try:
        return int(asyncio.run(args.run(args, terminal)))
    except (TriptychError, Failure) as error:
        return report(error, terminal)
    except (KeyboardInterrupt, asyncio.CancelledError):
        terminal.note("triptych: interrupted")
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
