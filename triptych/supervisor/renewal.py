"""Sees when certificates have been replaced, for those who do not look themselves."""

import asyncio
import contextlib
from collections.abc import Callable

from triptych.tls import TlsError, TlsFiles

LOOK_EVERY_S = 2.0


async def tell_renewals(files: TlsFiles, on_renewed: Callable[[], None]) -> None:
    """Call `on_renewed` each time that the files have changed, until cancelled. Raises `TlsError` if none are there."""
    stamp = files.stamp
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        with contextlib.suppress(TlsError):  # half replaced
            if files.stamp != stamp:
                stamp = files.stamp
                on_renewed()
