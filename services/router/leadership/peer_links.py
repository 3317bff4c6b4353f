"""The way to the other routers: a channel each, opened anew when the certificates have been replaced."""

import asyncio

import grpc
import structlog

from services.router.going_down import going_down
from triptych.rpc import Credentials, open_channel
from triptych.rpc.channel import RENEWAL_GRACE_S
from triptych.tls import Stamp, TlsError

log = structlog.get_logger()

_MAX_CHANNELS = 4


class PeerLinks:
    """Channels by address, so many at most: the one that was used last stays longest."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._stamp: Stamp = ()
        self._closed = False

    def channel(self, address: str) -> grpc.aio.Channel:
        """The channel to a router.

        Raises `TlsError` where there is none and the certificates cannot be used, DRAINING once they are closed.
        """
        if self._closed:
            raise going_down()
        self._renew()
        channel = self._channels.pop(address, None) or open_channel(address, self._credentials)
        self._channels[address] = channel
        if len(self._channels) > _MAX_CHANNELS:
            self._leave(self._channels.pop(next(iter(self._channels))), 0.0)
        return channel

    async def close(self) -> None:
        self._closed = True
        for closing in self._closing:
            closing.cancel()
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))

    def _renew(self) -> None:
        tls = self._credentials.tls
        if tls is None:
            return
        try:
            stamp = tls.stamp
            if stamp == self._stamp:
                return
            tls.check()
        except TlsError as error:
            log.warning("certificates_not_renewed", error=str(error))
            return
        self._stamp = stamp
        for channel in self._channels.values():
            self._leave(channel, RENEWAL_GRACE_S)
        self._channels.clear()

    def _leave(self, channel: grpc.aio.Channel, grace_s: float) -> None:
        closing = asyncio.get_running_loop().create_task(channel.close(grace_s))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
