"""The command line: which commands there are, and the options that several share."""

import argparse
from collections.abc import Awaitable, Callable
from pathlib import Path

from triptych import __version__
from triptych.cli import demo, fleet, generate, jobs, simulate, suite, token
from triptych.cli.terminal import Terminal
from triptych.cli.values import words

Run = Callable[[argparse.Namespace, Terminal], Awaitable[int]]

_EPILOG = """\
exit codes: 0 ok, 1 job failed or cancelled, 2 bad input, 3 router or worker not there, 4 refused (overload, too long)
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of `triptych`. Each command sets `run` to the coroutine function that performs it."""
    parser = argparse.ArgumentParser(
        prog="triptych",
        description="Serve diffusion models as a suite of services, and use them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"triptych {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    local, remote = _shared_local(), _shared_remote()
    for module in (suite, demo, simulate, token):
        module.register(commands, local)
    for client_module in (generate, jobs, fleet):
        client_module.register(commands, remote)
    return parser


def _shared_local() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="write JSON to standard output")
    return shared


def _shared_remote() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False, parents=[_shared_local()])
    shared.add_argument(
        "--router",
        type=words,
        metavar="HOST:PORT[,…]",
        help="router to talk to, or several (default: $TRIPTYCH_ROUTER, the suite that runs here, or 127.0.0.1:7460)",
    )
    shared.add_argument(
        "--token",
        type=words,
        metavar="TOKEN",
        help="what a router asks for (default: $TRIPTYCH_TOKEN, or that of the suite here)",
    )
    shared.add_argument(
        "--ca", type=Path, metavar="FILE", help="certificates to trust, PEM: use TLS (default: $TRIPTYCH_CA)"
    )
    return shared
