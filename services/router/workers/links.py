"""The way to the workers: channels that show who the router is, and check who answers."""

import grpc

from services.router.stages import FROM_PROTO
from triptych.rpc import Credentials, open_channel
from triptych.tls import Stamp, TlsFiles
from triptych.v1.worker_pb2 import WorkerHeartbeat


class WorkerLinks:
    """Opens channels. A worker's certificate must have its role for a DNS name: "encoder", "denoiser", "decoder".

    `stamp` changes with the certificates; channels opened before go on with the earlier ones. `token` is asked for by
    workers that have one.
    """

    def __init__(self, tls: TlsFiles | None = None, token: str | None = None) -> None:
        self._tls = tls if tls is not None and tls.wanted else None
        self._token = token

    @property
    def stamp(self) -> Stamp:
        """Of the files as they are now. Raises `TlsError`."""
        return self._tls.stamp if self._tls is not None else ()

    def open(self, beat: WorkerHeartbeat) -> grpc.aio.Channel:
        """A channel to the worker that sent this. Raises `TlsError`."""
        role = f"{FROM_PROTO[beat.stage].value}r"
        return open_channel(beat.address, Credentials(tls=self._tls, token=self._token, server_name=role))
