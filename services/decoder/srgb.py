"""What a file says of its colours: they are sRGB, as the frames of every model are taken to be."""

import struct

from PIL import ImageCms
from PIL.PngImagePlugin import PngInfo


def _profile() -> bytes:
    """Return an ICC profile, the same bytes at any time: Pillow writes into it when it was made."""
    made = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return made[:24] + struct.pack(">6H", 2000, 1, 1, 0, 0, 0) + made[36:]


# For JPEG and WebP.
ICC_PROFILE = _profile()
# For PNG, whose own chunk says it in one byte: the intent, perceptual.
PNG_CHUNKS = PngInfo()
PNG_CHUNKS.add(b"sRGB", b"\0")
