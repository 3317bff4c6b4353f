"""What can go wrong on the exchange."""

from triptych.v1.tensor_pb2 import DataRef


class ExchangeError(Exception):
    """Base of every error of the exchange."""


class BundleInvalid(ExchangeError):
    """What a caller asked to put cannot be carried: an unknown type, an integer out of range, too deep."""


class ManifestMalformed(ExchangeError):
    """A manifest, or the payload beside it, breaks the wire format."""


class BundleGone(ExchangeError):
    """The bundle, or part of it, is no longer on the exchange: it expired, or was deleted."""

    def __init__(self, ref: DataRef) -> None:
        super().__init__(f"bundle {ref.bundle_id} is no longer in store {ref.store}")
        self.ref = ref


class BundleCorrupt(ExchangeError):
    """The bundle is there, and is not what was put."""

    def __init__(self, ref: DataRef, why: str) -> None:
        super().__init__(f"bundle {ref.bundle_id} in store {ref.store} is corrupt: {why}")
        self.ref = ref
        self.why = why


class StoreFull(ExchangeError):
    """The store has reached its byte limit and refuses newcomers; what it holds is untouched."""

    def __init__(self, store: str) -> None:
        super().__init__(f"store {store} is full")
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
        super().__init__(why)
        self.why = why
