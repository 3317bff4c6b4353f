"""`triptych up` and `down`: a whole suite on this machine."""

import argparse
import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triptych.cli.detached import start_detached
from triptych.cli.failures import EXIT_BAD_INPUT, EXIT_JOB_FAILED, Failure
from triptych.cli.startup import Startup
from triptych.cli.suite_options import add_suite_options, suite_config
from triptych.cli.terminal import Terminal
from triptych.client.local_suite import DEFAULT_ADDRESS, STATE_FILE, default_state_dir, is_locked, lock_owner

if TYPE_CHECKING:
    from triptych.supervisor import Suite, SuiteConfig

DOWN_LIMIT_S = 60.0
LOOK_EVERY_S = 0.05


def register(commands: Any, shared: argparse.ArgumentParser) -> None:
    """Add the commands."""
    up = commands.add_parser("up", parents=[shared], allow_abbrev=False, help="start a suite on this machine")
    up.add_argument("--detach", action="store_true", help="leave it running and return once it is ready")
    up.add_argument(
        "--listen", metavar="HOST:PORT", default=DEFAULT_ADDRESS, help=f"router's address (default {DEFAULT_ADDRESS})"
    )
    up.add_argument(
        "--auth",
        action=argparse.BooleanOptionalAction,
        help="have the router ask for tokens, the first made here (default: if other machines can reach it)",
    )
    up.add_argument(
        "--tls",
        nargs="?",
        const="",
        metavar="FOLDER",
        help="mutual TLS on every hop, with the certificates of a folder; what is missing there is made "
        "(default folder: secrets/tls in the suite's)",
    )
    add_suite_options(up)
    up.set_defaults(run=run_up)
    down = commands.add_parser("down", parents=[shared], help="stop the suite that runs here")
    down.set_defaults(run=run_down)
    for parser in (up, down):
        parser.add_argument(
            "--state", type=Path, metavar="DIR", help="the suite's folder (default: $TRIPTYCH_STATE, or .triptych)"
        )


async def run_up(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run a suite until Ctrl-C, or leave it running."""
    state_dir = args.state or default_state_dir()
    tls = None if args.tls is None else Path(args.tls or state_dir / "secrets" / "tls")
    config = suite_config(args, state_dir=state_dir, listen=args.listen, auth=args.auth, tls=tls)
    startup = Startup(terminal)
    startup.open_spinner()
    try:
        if args.detach:
            await _detach(args, state_dir, startup, terminal)
        else:
            await _stay(config, startup, terminal)
    finally:
        startup.close_spinner()
    return 0


async def run_down(args: argparse.Namespace, terminal: Terminal) -> int:
    """Stop a suite and wait for its end."""
    state_dir: Path = args.state or default_state_dir()
    pid = lock_owner(state_dir)
    if pid is None:
        killed = (state_dir / STATE_FILE).exists()
        (state_dir / STATE_FILE).unlink(missing_ok=True)
        why = "the one that did was killed" if killed else "nothing to stop"
        terminal.say(f"no suite runs from {state_dir}: {why}")
        terminal.emit({"stopped": False})
        return 0
    os.kill(pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(DOWN_LIMIT_S):
            while is_locked(state_dir):  # noqa: ASYNC110 - another process holds the lock
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        raise Failure(f"process {pid} still stops after {DOWN_LIMIT_S:.0f} s", EXIT_JOB_FAILED) from None
    terminal.say(f"stopped the suite of {state_dir}")
    terminal.emit({"stopped": True, "pid": pid})
    return 0


async def _detach(args: argparse.Namespace, state_dir: Path, startup: Startup, terminal: Terminal) -> None:
    arguments = [argument for argument in args.arguments if argument != "--detach"]
    try:
        ready = await start_detached(arguments, state_dir, startup)
    except OSError as error:
        raise Failure(f"the suite could not be started: {error}", EXIT_JOB_FAILED) from error
    startup.close_spinner()
    if ready["warning"]:
        terminal.note(f"warning: {ready['warning']}")
    terminal.say(f"the suite runs; router at {ready['address']}; stop it: triptych down")
    _warn(ready["refused"], terminal)
    terminal.emit(ready)


def _warn(refused: Mapping[str, str], terminal: Terminal) -> None:
    for model, why in refused.items():
        terminal.note(f"warning: {model} is not served: {why}")


async def _stay(config: "SuiteConfig", startup: Startup, terminal: Terminal) -> None:
    from triptych.supervisor import SuiteError, SuiteRunning
    from triptych.supervisor.foreground import run_suite

    def ready(suite: "Suite") -> None:
        startup.close_spinner()
        terminal.say(f"ready after {startup.elapsed_s:.1f} s; router at {suite.address}; Ctrl-C stops it")
        _warn(suite.refused, terminal)
        if suite.token_file is not None:
            terminal.note(f"clients need a token: {suite.token_file} has one; more: triptych token new --help")
        if config.tls is not None and not config.has_own_tls:
            terminal.note(
                f"clients need a certificate: {config.tls} has client.pem and client.key, and ca.pem to trust"
            )
        if suite.disk_shortage is not None:
            terminal.note(f"warning: {suite.disk_shortage}")
        terminal.tell(
            {
                "state": "ready",
                "address": suite.address,
                "exchange_url": suite.exchange_url,
                "pid": os.getpid(),
                "elapsed_s": round(startup.elapsed_s, 3),
                "refused": suite.refused,
                "warning": suite.disk_shortage,
            }
        )

    def ending() -> None:
        startup.close_spinner()
        if not terminal.as_json:
            terminal.note("stopping; once more kills what still drains")

    try:
        await run_suite(
            config,
            on_change=lambda service: startup.show(*service.snapshot()),
            on_ready=ready,
            on_ending=ending,
        )
    except SuiteRunning as running:
        where = f"; its router is at {running.suite.address}" if running.suite else ""
        raise Failure(f"{running}{where}; stop it: triptych down", EXIT_BAD_INPUT) from running
    except (SuiteError, OSError) as error:
        raise Failure(f"the suite could not be started: {error}", EXIT_JOB_FAILED) from error
