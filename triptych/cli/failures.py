"""What went wrong, said so that a person knows what to do, and as an exit code for a script."""

from google.rpc import code_pb2

from triptych.cli.terminal import Terminal, seconds
from triptych.errors import Reason, TriptychError

EXIT_JOB_FAILED = 1
EXIT_UNWRITABLE = 1
EXIT_BAD_INPUT = 2
EXIT_UNREACHABLE = 3
EXIT_REFUSED = 4
EXIT_INTERRUPTED = 130

_BY_CODE = {
    code_pb2.INVALID_ARGUMENT: EXIT_BAD_INPUT,
    code_pb2.NOT_FOUND: EXIT_BAD_INPUT,
    code_pb2.ALREADY_EXISTS: EXIT_BAD_INPUT,
    code_pb2.UNAUTHENTICATED: EXIT_BAD_INPUT,
    code_pb2.PERMISSION_DENIED: EXIT_BAD_INPUT,
    code_pb2.UNAVAILABLE: EXIT_UNREACHABLE,
    code_pb2.RESOURCE_EXHAUSTED: EXIT_REFUSED,
}
_BY_REASON = {
    Reason.TOO_LONG: EXIT_REFUSED,
    Reason.DEADLINE_UNREACHABLE: EXIT_REFUSED,
    Reason.MODEL_UNAVAILABLE: EXIT_REFUSED,
    Reason.OUTPUT_NOT_READY: EXIT_BAD_INPUT,
    # Admission never says these: they are how a job ends.
    Reason.OUT_OF_MEMORY: EXIT_JOB_FAILED,
    Reason.WORKER_LOST: EXIT_JOB_FAILED,
}


class Failure(Exception):
    """An error of the command itself: words for a person, and the exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code


def exit_code(error: TriptychError) -> int:
    """The exit code for an error of the router: 2 bad input, 3 unreachable, 4 refused, 1 anything else."""
    return _BY_REASON.get(error.reason, _BY_CODE.get(error.reason.code, EXIT_JOB_FAILED))


def no_router(address: str, error: TriptychError) -> TriptychError:
    """The error that says which router did not answer, and how to get one."""
    if error.reason is not Reason.UNREACHABLE:
        return error
    if "failed to connect" in error.message.lower():
        message = f"no router at {address}; start one: triptych up"
    else:
        message = f"the router at {address} does not answer: {error.message}"
    return TriptychError(error.reason, message, metadata={**error.metadata, "detail": error.message})


def report(error: TriptychError | Failure, terminal: Terminal) -> int:
    """Write the error down and give its exit code."""
    if isinstance(error, Failure):
        terminal.note(f"triptych: {error.message}")
        terminal.emit({"error": {"message": error.message}})
        return error.exit_code
    terminal.note(f"triptych: {_headline(error)}")
    for line in _details(error):
        terminal.note(f"  {line}")
    terminal.emit({"error": error_record(error)})
    return exit_code(error)


def error_record(error: TriptychError) -> dict[str, object]:
    """An error as JSON."""
    return {
        "reason": error.reason.name,
        "message": error.message,
        "metadata": error.metadata,
        "violations": [{"field": v.field, "description": v.description} for v in error.violations],
        "retry_after_s": error.retry_after_s,
    }


def _headline(error: TriptychError) -> str:
    if exit_code(error) == EXIT_REFUSED:
        return f"refused ({error.reason.name}): {error.message}"
    if error.violations:
        return "this input cannot be used"
    return error.message


def _details(error: TriptychError) -> list[str]:
    lines = [f"{violation.field}: {violation.description}" for violation in error.violations]
    if error.reason is not Reason.UNREACHABLE:
        lines += [f"{key}: {value}" for key, value in sorted(error.metadata.items())]
    if error.retry_after_s is not None:
        lines.append(f"try again in {seconds(error.retry_after_s)}")
    return lines
