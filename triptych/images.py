"""Images that a job brings along, read as an image viewer shows them: docs/decisions/0029-what-goes-in.md."""

import io
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from PIL import Image, ImageChops, ImageCms, ImageOps, UnidentifiedImageError

from triptych.file_kinds import file_kind, wrong_kind

MAX_PIXELS = 64_000_000
# Longer ones cannot be resized in reasonable memory.
MAX_SIDE = 16_384

Size: TypeAlias = tuple[int, int]

_FORMATS = ("PNG", "JPEG", "WEBP")
# Chunks of a PNG that shape what it shows. Others are left out: Pillow would unpack texts, and fails with long ones.
_PNG_CHUNKS = frozenset((b"IHDR", b"PLTE", b"tRNS", b"eXIf", b"acTL", b"fcTL", b"fdAT", b"IDAT", b"IEND"))
_PNG_BEGINNING = 8
# Pillow takes no larger ones (`PngImagePlugin.MAX_TEXT_CHUNK`).
_MAX_PNG_PROFILE = 1 << 20
# Where a PNG says how many bits a colour has.
_PNG_DEPTH = 24
# The next byte, where it says that colours are entries of a palette.
_PNG_PALETTE = b"\3"
_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDEWAYS = frozenset(_TURNS[value] for value in (5, 6, 7, 8))
# Modes of an image's colours, by the colour space of its profile.
_PROFILE_MODES = {"RGB": "RGB", "GRAY": "L", "CMYK": "CMYK"}
# What Pillow raises of a file that is broken, by its format and by the place.
_BROKEN = (OSError, ValueError, SyntaxError, TypeError, LookupError, ArithmeticError, struct.error, zlib.error)

# Pillow warns of what `MAX_PIXELS` refuses.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class UnusableImage(ValueError):
    """A file that is refused; the message goes on after the file's name, and says what to do."""


def read_image(data: bytes, *, is_mask: bool = False) -> Image.Image:
    """The image in a PNG, JPEG or WebP file: RGB in sRGB, upright, on white where it is transparent.

    A mask comes as "L": white is painted anew. If its alpha varies, that alone decides, and what is transparent is
    painted anew. Raises `UnusableImage`.
    """
    with _decoded(data) as image:
        shown = _mask(image) if is_mask else _shown(image)
        turn = _turn(image)
        return shown if turn is None else shown.transpose(turn)


def image_size(data: bytes) -> Size:
    """The size of the image that `read_image` makes of a file. Raises `UnusableImage` of the same files."""
    with _decoded(data) as image:
        width, height = image.size
        return (height, width) if _turn(image) in _SIDEWAYS else (width, height)


def fit(image: Image.Image, size: Size) -> Image.Image:
    """The image at a width and height: resized to cover them (Lanczos), then cropped around its middle."""
    return image if image.size == size else ImageOps.fit(image, size, Image.Resampling.LANCZOS)


def is_shape_of(mask_size: Size, image_size: Size) -> bool:
    """Whether a mask has its image's shape, but for the rounding of its sides."""
    (width, height), (image_width, image_height) = mask_size, image_size
    return abs(width * image_height - height * image_width) <= image_width + image_height


@contextmanager
def _decoded(data: bytes) -> Iterator[Image.Image]:
    """The file's pixels, as they are stored."""
    if why := wrong_kind(data):
        raise UnusableImage(why)
    kind = file_kind(data)
    try:
        with Image.open(io.BytesIO(_lean_png(data) if kind == "PNG" else data), formats=_FORMATS) as image:
            _check_size(image.size)
            _check_frames(image)
            if kind == "PNG":
                _set_png_key(image, data[_PNG_DEPTH])
            image.load()
            yield image
    except UnusableImage:
        raise
    except Image.DecompressionBombError as error:
        raise UnusableImage(f"has more than {MAX_PIXELS} pixels") from error
    except UnidentifiedImageError as error:
        raise UnusableImage(f"is a {kind} file whose beginning is broken or cut off") from error
    except _BROKEN as error:
        raise UnusableImage(f"is a {kind} file that is broken or cut off: {error}") from error


def _check_size(size: Size) -> None:
    width, height = size
    if min(width, height) < 1:
        raise UnusableImage(f"has {width} × {height} pixels")
    if max(width, height) > MAX_SIDE:
        raise UnusableImage(f"has {width} × {height} pixels; at most {MAX_SIDE} a side")
    if width * height > MAX_PIXELS:
        raise UnusableImage(f"has {width} × {height} pixels; at most {MAX_PIXELS} allowed")


def _check_frames(image: Image.Image) -> None:
    # A JPEG may hold more (depth, gain maps): its first is the one that is shown.
    frame_count = getattr(image, "n_frames", 1)
    if image.format in ("PNG", "WEBP") and frame_count > 1:
        raise UnusableImage(f"is an animation of {frame_count} frames: save the one that is meant")


def _set_png_key(image: Image.Image, depth: int) -> None:
    """The colour that is transparent (tRNS), if there is one, as Pillow compares it."""
    if "transparency" not in image.info or image.mode == "P":
        return
    if depth == 16:
        raise UnusableImage("is a PNG of 16 bits with one colour transparent (tRNS): save it with an alpha channel")
    if image.mode == "L":
        # Pillow widens the pixels to eight bits, and leaves the colour as it is.
        image.info["transparency"] *= 255 // (2**depth - 1)


def _shown(image: Image.Image) -> Image.Image:
    colours, alpha = _colours(image), _alpha(image)
    if alpha is not None:
        colours.paste("white", mask=ImageChops.invert(alpha))
    return colours


def _mask(image: Image.Image) -> Image.Image:
    alpha = _alpha(image)
    if alpha is None or len(set(alpha.getextrema())) == 1:
        return _shown(image).convert("L")
    return ImageChops.invert(alpha)


def _alpha(image: Image.Image) -> Image.Image | None:
    """How opaque each pixel is; None if all are, wholly."""
    if not image.has_transparency_data:
        return None
    alpha = (image if "A" in image.getbands() else image.convert("RGBA")).getchannel("A")
    return None if alpha.getextrema() == (255, 255) else alpha


def _colours(image: Image.Image) -> Image.Image:
    """The colours in sRGB, whatever is transparent."""
    if image.mode == "I;16":
        # The high byte, which is what Pillow keeps of 16-bit colours. Its own conversion makes white of all above 255.
        image = image.point(lambda value: value * (1 / 256)).convert("L")
    elif image.mode == "P":
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    base = image.mode if image.mode == "CMYK" else "L" if image.mode in ("1", "L", "LA") else "RGB"
    profile = image.info.get("icc_profile")
    return (profile and _in_srgb(image, base, profile)) or image.convert("RGB")


def _in_srgb(image: Image.Image, base: str, profile: bytes) -> Image.Image | None:
    """The colours by the image's profile; None if that is broken, or of another kind of colours, as viewers do."""
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        mode = _PROFILE_MODES.get(source.profile.xcolor_space.strip())
        if mode != base and (base, mode) != ("L", "RGB"):
            return None
        target = ImageCms.createProfile("sRGB")
        return ImageCms.profileToProfile(image.convert(mode), source, target, outputMode="RGB")
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return None


def _turn(image: Image.Image) -> Image.Transpose | None:
    """What brings the image upright. A viewer shows an image whose EXIF is broken all the same."""
    try:
        return _TURNS.get(image.getexif().get(_ORIENTATION, 1))
    except _BROKEN:
        return None


def _lean_png(data: bytes) -> bytes:
    """The file without the chunks that do not shape what it shows. Raises `UnusableImage`."""
    if len(data) > _PNG_DEPTH:
        _check_size((int.from_bytes(data[16:20]), int.from_bytes(data[20:24])))
    has_palette, entries = data[_PNG_DEPTH + 1 : _PNG_DEPTH + 2] == _PNG_PALETTE, 0
    kept, place = [data[:_PNG_BEGINNING]], _PNG_BEGINNING
    while place < len(data):
        length = int.from_bytes(data[place : place + 4])
        name, end = data[place + 4 : place + 8], place + 12 + length
        if name == b"PLTE":
            entries = length // 3
        if name == b"tRNS" and has_palette and length > entries:
            # Viewers leave it aside; Pillow fails when colours are converted.
            pass
        elif name == b"iCCP":
            kept += [data[place:end]] if _has_profile(data[place + 8 : end - 4]) else []
        elif name in _PNG_CHUNKS or not name.isalpha():
            kept.append(data[place:end])
        place = end
    return b"".join(kept)


def _has_profile(chunk: bytes) -> bool:
    """Whether a PNG's iCCP chunk can be unpacked. Raises `UnusableImage` if there is too much in it."""
    _, _, packed = chunk.partition(b"\0")
    unpacking = zlib.decompressobj()
    try:
        unpacking.decompress(packed[1:], _MAX_PNG_PROFILE)
    except zlib.error:
        return False
    if unpacking.unconsumed_tail:
        raise UnusableImage(f"has a colour profile of more than {_MAX_PNG_PROFILE} bytes: save it as sRGB")
    return packed[:1] == b"\0"
