"""`triptych up --detach`: the same command in a session of its own, watched until it is ready."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from triptych.cli.failures import EXIT_JOB_FAILED, Failure
from triptych.cli.startup import Startup

# One JSON line; an error carries the last lines of a log.
MAX_LINE_BYTES = 256 * 1024


async def start_detached(arguments: Sequence[str], state_dir: Path, startup: Startup) -> dict[str, Any]:
    """Run `triptych ARGUMENTS --json` until it says that it is ready; what it says then.

    Raises `Failure` with its own words if it ends before. If this task is cancelled, the suite is stopped.
    """
    logs = state_dir / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with (logs / "supervisor.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 - asyncio's own would end the process with this loop
            [sys.executable, "-P", "-m", "triptych.cli", *arguments, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    try:
        async for line in _lines(process):
            if "service" in line:
                startup.show(line["service"], line["state"], line["detail"])
            elif line.get("state") == "ready":
                return line
            elif "error" in line:
                raise Failure(line["error"]["message"], await _ended(process))
    except BaseException:
        process.terminate()
        await _ended(process)
        raise
    raise Failure(f"the supervisor ended; its log is {logs / 'supervisor.log'}", await _ended(process))


async def _lines(process: "subprocess.Popen[bytes]") -> AsyncIterator[dict[str, Any]]:
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    assert process.stdout is not None, "a pipe was asked for"
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), process.stdout
    )
    with contextlib.closing(transport):
        while line := await reader.readline():
            yield json.loads(line)


async def _ended(process: "subprocess.Popen[bytes]") -> int:
    return await asyncio.to_thread(process.wait) or EXIT_JOB_FAILED
