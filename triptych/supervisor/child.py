"""Runs a command as a process that cannot outlive its supervisor: `python child.py SUPERVISOR_PID COMMAND…`.

It is called by its path, not as a module: so it imports nothing of the package and adds a few milliseconds only.
"""

import ctypes
import os
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1
LOOK_EVERY_S = 0.25


def main(supervisor: int, command: list[str]) -> int:
    """Become the command (Linux), or run it and watch the supervisor (elsewhere)."""
    if sys.platform != "linux":
        return watch(supervisor, command)
    # Kept over execv. The kernel sends it when the supervisor's thread that started us ends, however it ends.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == supervisor:  # else it died before the call above
        os.execv(command[0], command)
    return 1


def watch(supervisor: int, command: list[str]) -> int:
    """Run the command; kill it once the supervisor is no longer our parent."""
    process = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    while os.getppid() == supervisor:
        try:
            code = process.wait(timeout=LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            continue
        return code if code >= 0 else 128 - code
    process.kill()
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
