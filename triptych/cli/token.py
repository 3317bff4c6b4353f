"""`triptych token new`: a token for a client, and what the router's tokens file has of it."""

import argparse
import os
from pathlib import Path
from typing import Any

from triptych.cli.failures import EXIT_BAD_INPUT, Failure
from triptych.cli.terminal import Terminal
from triptych.cli.values import words
from triptych.tokens import SCOPES, new_token, token_entry


def register(commands: Any, shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    token = commands.add_parser("token", help="make tokens for clients")
    kinds = token.add_subparsers(metavar="COMMAND", required=True)
    new = kinds.add_parser("new", parents=[shared], help="make a token, and its entry for the router's tokens file")
    new.add_argument("--tenant", type=words, required=True, metavar="NAME", help="whose it is")
    new.add_argument(
        "--scope", action="append", choices=SCOPES, help="what it is good for; repeat (default: submit and read)"
    )
    new.add_argument("--name", type=words, default="", metavar="TEXT", help="which one it is, for people")
    new.add_argument("--file", type=Path, metavar="FILE", help="tokens file to add the entry to; a router sees it soon")
    new.set_defaults(run=run_new)


async def run_new(args: argparse.Namespace, terminal: Terminal) -> int:
    """Make a token. It is shown once; the file has its hash only."""
    token = new_token()
    try:
        entry = token_entry(token, args.tenant, args.scope or ("submit", "read"), args.name)
        if args.file is not None:
            _append(args.file, entry)
    except (ValueError, OSError) as error:
        raise Failure(str(error), EXIT_BAD_INPUT) from error
    terminal.say(token)
    if args.file is None:
        terminal.note(f"The token is shown this once. Its entry for the router's tokens file:\n\n{entry}")
    else:
        terminal.note(f"The token is shown this once; its entry was added to {args.file}.")
    terminal.emit({"token": token, "entry": entry})
    return 0


def _append(path: Path, entry: str) -> None:
    """Add to the file in one write, as its owner's alone where it is new."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        file.write(("\n" if file.tell() else "") + entry)
