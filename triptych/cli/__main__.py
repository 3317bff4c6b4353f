"""Entry point of the `triptych` command."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from triptych.cli.arguments import build_parser
from triptych.cli.failures import EXIT_INTERRUPTED, Failure, report
from triptych.cli.terminal import Terminal
from triptych.errors import TriptychError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code: 0 ok, 1 job failed, 2 bad input, 3 unreachable, 4 refused."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    args = build_parser().parse_args(arguments, argparse.Namespace(arguments=arguments))
    terminal = Terminal(as_json=args.json)
    try:
        code = asyncio.run(args.run(args, terminal))
        sys.stdout.flush()
        return int(code)
    except (TriptychError, Failure) as error:
        return report(error, terminal)
    except (KeyboardInterrupt, asyncio.CancelledError):
        terminal.note("triptych: interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough (`| head`). Python flushes stdout once more at exit, which would complain.
        sys.stdout = None
        return 0


if __name__ == "__main__":
    sys.exit(main())
