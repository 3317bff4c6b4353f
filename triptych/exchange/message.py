"""The message that commits a bundle: its manifest, and the whole payload of a small one."""

import struct
from collections.abc import Iterable

from google.protobuf.message import DecodeError

from triptych.exchange.digest import DIGEST_BYTES
from triptych.exchange.errors import ManifestMalformed
from triptych.v1 import tensor_pb2 as pb

SCHEMA_VERSION = 1

_LENGTH = struct.Struct("<I")


def to_message(manifest: pb.BundleManifest, inline: Iterable[memoryview] = ()) -> bytes:
    """The message that commits a bundle: length of the manifest, manifest, and the payload if it goes along."""
    serialized = manifest.SerializeToString()
    return b"".join((_LENGTH.pack(len(serialized)), serialized, *inline))


def from_message(message: bytes) -> tuple[pb.BundleManifest, memoryview]:
    """The manifest and what follows it: the payload when `chunk_count` is zero, else nothing.

    Checks the manifest's own fields; `decode` checks the values. Raises ManifestMalformed.
    """
    view = memoryview(message)
    if view.nbytes < _LENGTH.size or _LENGTH.unpack_from(view)[0] > view.nbytes - _LENGTH.size:
        raise ManifestMalformed(f"cut off after {view.nbytes} bytes")
    end = _LENGTH.size + _LENGTH.unpack_from(view)[0]
    try:
        manifest = pb.BundleManifest.FromString(message[_LENGTH.size : end])
    except DecodeError as error:
        raise ManifestMalformed("not a BundleManifest") from error
    if manifest.schema_version != SCHEMA_VERSION:
        raise ManifestMalformed(f"schema version {manifest.schema_version}; this reader knows {SCHEMA_VERSION}")
    if len(manifest.digest) != DIGEST_BYTES:
        raise ManifestMalformed(f"a digest of {len(manifest.digest)} bytes")
    _check_chunks(manifest, view.nbytes - end)
    return manifest, view[end:]


def _check_chunks(manifest: pb.BundleManifest, inline_bytes: int) -> None:
    size, count = manifest.byte_size, manifest.chunk_count
    if inline_bytes != (0 if count else size):
        raise ManifestMalformed(f"{inline_bytes} bytes inline, {count} chunks, for {size} bytes")
    if count and (manifest.chunk_bytes == 0 or -(-size // manifest.chunk_bytes) != count):
        raise ManifestMalformed(f"{count} chunks of {manifest.chunk_bytes} bytes for {size} bytes")
