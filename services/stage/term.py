"""Which terms of routers there have been: the exchange knows, whatever a caller says."""

import asyncio
from typing import TYPE_CHECKING

import nats.errors
import structlog

if TYPE_CHECKING:
    from services.stage.worker import WorkerHost

log = structlog.get_logger()
# The bucket whose revisions are the routers' terms.
LEADER_STREAM = "KV_leader"
_PAUSE_S = 1.0


async def keep_term(host: "WorkerHost") -> None:
    """For ever: when a call was refused as of an older term, see whether the newer one can have been.

    It cannot if no revision was ever so high: then it was nobody's, or of a store that has been replaced since. Without
    this, every router to come would be refused until the worker is started again.
    """
    while True:
        await host.calls.doubted.wait()
        host.calls.doubted.clear()  # before the look: what is doubted meanwhile is looked at again
        try:
            info = await host.exchange.jetstream.stream_info(LEADER_STREAM)
            host.calls.correct(info.state.last_seq)
        except (nats.errors.Error, TimeoutError) as error:
            host.calls.doubted.set()
            log.warning("term_unconfirmed", error=repr(error))
        await asyncio.sleep(_PAUSE_S)
