"""What can go wrong on the exchange."""

from collections.abc import Mapping

from triptych.errors import Reason, TriptychError
from triptych.v1.tensor_pb2 import DataRef

# What the loss of a bundle is called, by the store that it lay in.
_GONE = {
    "conditioning": Reason.CONDITIONING_GONE,
    "latents": Reason.LATENTS_GONE,
    "outputs": Reason.OUTPUT_GONE,
}
_DISK_RETRY_AFTER_S = 30.0


class ExchangeError(TriptychError):
    """Base of every error of the exchange: each has its reason in the catalog, so that it travels as it is."""

    def __init__(
        self,
        message: str,
        reason: Reason = Reason.INTERNAL,
        metadata: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(reason, message, metadata=metadata, retry_after_s=retry_after_s)


class BundleInvalid(ExchangeError):
    """What a caller asked to put cannot be carried: an unknown type, an integer out of range, too deep."""


class ManifestMalformed(ExchangeError):
    """A manifest, or the payload beside it, breaks the wire format."""


class BundleGone(ExchangeError):
    """The bundle, or part of it, is no longer on the exchange: it expired, or was deleted."""

    def __init__(self, ref: DataRef) -> None:
        super().__init__(
            f"bundle {ref.bundle_id} is no longer in store {ref.store}", _GONE.get(ref.store, Reason.INTERNAL)
        )
        self.ref = ref


class BundleCorrupt(ExchangeError):
    """The bundle is there, and is not what was put."""

    def __init__(self, ref: DataRef, why: str) -> None:
        message = f"bundle {ref.bundle_id} in store {ref.store} is corrupt: {why}"
        super().__init__(message, Reason.BUNDLE_CORRUPT, {"store": ref.store})
        self.ref = ref
        self.why = why


class StoreFull(ExchangeError):
    """The store has reached its byte limit and refuses newcomers; what it holds is untouched.

    `byte_size` is the refused bundle's, 0 if it is none.
    """

    def __init__(self, store: str, byte_size: int = 0) -> None:
        metadata = {"store": store, "byte_size": str(byte_size)}
        super().__init__(f"store {store} is full", Reason.STORE_FULL, metadata)
        self.store = store
        self.byte_size = byte_size


class DiskFull(ExchangeError):
    """The disk of NATS's store is full: the server cannot write, whatever the store's own limit; what it has stays."""

    def __init__(self, store: str) -> None:
        message = (
            f"The disk of NATS's store is full, {store} cannot be written: free some of it. "
            "What was accepted is kept, and goes on when there is room."
        )
        super().__init__(message, Reason.DISK_FULL, {"store": store}, _DISK_RETRY_AFTER_S)
        self.store = store


class StreamConflict(ExchangeError):
    """A stream exists with a configuration that cannot be changed into the one asked for."""

    def __init__(self, stream: str, why: str) -> None:
        super().__init__(f"stream {stream} cannot be brought to its configuration: {why}")
        self.stream = stream
        self.why = why


class ExchangeUnavailable(ExchangeError):
    """NATS did not answer within the configured bound, or refused to."""

    def __init__(self, why: str) -> None:
        super().__init__(why, Reason.EXCHANGE_UNAVAILABLE)
        self.why = why
