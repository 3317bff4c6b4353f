"""A worker's first word on a call that it answers once: it has the work, which would be lost with it."""

from collections.abc import Iterable

from triptych.rpc.typing import Context

_HEADER = ("triptych-at-work", "1")


async def say_at_work(context: Context) -> None:
    """Send the initial metadata, ahead of the answer."""
    await context.send_initial_metadata((_HEADER,))


def is_at_work(initial_metadata: Iterable[tuple[str, str | bytes]] | None) -> bool:
    """Whether they are a worker's; a call that did not reach one has none, or empty ones."""
    return _HEADER in tuple(initial_metadata or ())
