"""A small bundle as one message, for those who send it themselves instead of storing it."""

from triptych.exchange.bundle import Bundle, Entry
from triptych.exchange.codec import decode, encode
from triptych.exchange.digest import digest_of
from triptych.exchange.errors import ManifestMalformed
from triptych.exchange.message import from_message, to_message


def pack(bundle: Bundle) -> bytes:
    """The bundle: manifest and payload. Raises BundleInvalid."""
    encoded = encode(bundle)
    encoded.manifest.digest = digest_of(encoded.buffers)
    return to_message(encoded.manifest, encoded.buffers)


def unpack(parcel: bytes) -> dict[str, Entry]:
    """The bundle of a parcel, its arrays in memory of their own. Raises ManifestMalformed."""
    manifest, inline = from_message(parcel)
    if manifest.chunk_count:
        raise ManifestMalformed("a parcel holds its payload itself")
    if digest_of([inline]) != manifest.digest:
        raise ManifestMalformed("the digest differs")
    return decode(manifest, memoryview(bytearray(inline)))
