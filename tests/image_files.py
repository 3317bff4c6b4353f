"""Image files of every property that decides what a viewer shows, with what it shows, worked out without Pillow."""

import io
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageCms
from PIL.PngImagePlugin import PngInfo

Pixels = np.ndarray[Any, Any]
HEIGHT, WIDTH = 4, 6
_RANDOM = np.random.RandomState(0)
RGB: Pixels = _RANDOM.randint(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)
GRAY: Pixels = _RANDOM.randint(0, 256, (HEIGHT, WIDTH)).astype(np.uint8)
ALPHA: Pixels = (np.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH) * 11).astype(np.uint8)
# Smooth, so that it is little changed by what loses some.
SMOOTH: Pixels = np.stack(np.broadcast_arrays(*np.ogrid[20:220:64j, 40:240:48j], 128.0), -1).round().astype(np.uint8)


@dataclass(frozen=True)
class ImageFile:
    """A file: what is `shown` of it (height × width × 3) within `tolerance`, its `mask`, or why it is `refused`."""

    name: str
    data: bytes
    shown: Pixels | None = None
    mask: Pixels | None = None
    refused: str = ""
    tolerance: int = 1


def opaque(name: str, data: bytes, colours: Pixels, tolerance: int = 1) -> ImageFile:
    """A file without transparency."""
    shown = colours if colours.ndim == 3 else np.stack([colours] * 3, -1)
    return ImageFile(name, data, shown, luminance(shown), tolerance=tolerance)


def transparent(name: str, data: bytes, colours: Pixels, alpha: Pixels) -> ImageFile:
    """A file with transparency."""
    colours = colours if colours.ndim == 3 else np.stack([colours] * 3, -1)
    part = alpha[..., None] / 255
    shown = np.round(colours * part + 255 * (1 - part)).astype(np.uint8)
    return ImageFile(name, data, shown, 255 - alpha if np.ptp(alpha) else luminance(shown))


def refused(name: str, data: bytes, words: str) -> ImageFile:
    return ImageFile(name, data, refused=words)


def luminance(shown: Pixels) -> Pixels:
    """ITU-R 601."""
    return np.round(shown @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(
    samples: Pixels, depth: int, colour_type: int, *chunks: tuple[bytes, bytes], size: tuple[int, int] | None = None
) -> bytes:
    """A PNG written by hand: samples are rows of numbers of `depth` bits; `size` in the header may be another."""
    rows = samples.reshape(len(samples), -1)
    bits = (rows[..., None] >> np.arange(depth)[::-1]) & 1
    packed = np.packbits(bits.reshape(len(rows), -1).astype(np.uint8), axis=1)
    width, height = size or (samples.shape[1], samples.shape[0])
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    parts = [chunk(b"IHDR", header), *(chunk(*each) for each in chunks)]
    parts += [chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row.tobytes() for row in packed))), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def saved(pixels: Pixels, kind: str, mode: str | None = None, **options: Any) -> bytes:
    """A file that Pillow writes."""
    file = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(file, kind, **options)
    return file.getvalue()


def cmyk_jpeg() -> bytes:
    file = io.BytesIO()
    Image.frombytes("CMYK", (CMYK.shape[1], CMYK.shape[0]), CMYK.tobytes()).save(file, "JPEG", quality=98)
    return file.getvalue()


def animated(kind: str) -> bytes:
    return saved(RGB, kind, save_all=True, append_images=[Image.fromarray(255 - RGB)])


def srgb_profile() -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def swapped_profile() -> bytes:
    """sRGB with red for green and green for red."""
    profile = srgb_profile()
    return profile.replace(b"rXYZ", b"----", 1).replace(b"gXYZ", b"rXYZ", 1).replace(b"----", b"gXYZ", 1)


def profile_of(colour_space: bytes) -> bytes:
    """One that says that it is for other colours."""
    return srgb_profile()[:16] + colour_space + srgb_profile()[20:]


def iccp(profile: bytes) -> tuple[bytes, bytes]:
    return b"iCCP", b"name\0\0" + zlib.compress(profile)


def exif(orientation: int) -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


def text() -> PngInfo:
    """More text, packed, than Pillow would unpack."""
    info = PngInfo()
    info.add_text("workflow", "x" * 3_000_000, zip=True)
    return info


# Of each orientation, what a viewer does with the rows and columns that are stored.
TURNED = {
    2: np.fliplr,
    3: lambda pixels: np.rot90(pixels, 2),
    4: np.flipud,
    5: lambda pixels: pixels.transpose(1, 0, 2),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: np.rot90(pixels, 2).transpose(1, 0, 2),
    8: np.rot90,
}
GRAY16: Pixels = GRAY.astype(np.uint16) * 257
RGB16: Pixels = RGB.astype(np.uint16) * 257
ALPHA16: Pixels = ALPHA.astype(np.uint16) * 257
PALETTE: Pixels = _RANDOM.randint(0, 256, (4, 3)).astype(np.uint8)
ENTRIES: Pixels = np.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH) % 4
CMYK: Pixels = np.dstack([SMOOTH, SMOOTH[..., 0] // 4])
NOISE: Pixels = _RANDOM.randint(0, 256, (64, 64, 3)).astype(np.uint8)
PLTE = (b"PLTE", PALETTE.tobytes())
BITS = GRAY >> 7
LONG = saved(NOISE, "PNG")


def keyed(depth: int) -> ImageFile:
    """Gray, where one value is transparent."""
    values = GRAY >> (8 - depth)
    key = int(values[0, 0])
    data = png(values, depth, 0, (b"tRNS", struct.pack(">H", key)))
    alpha = np.where(values == key, 0, 255).astype(np.uint8)
    return transparent(f"gray of {depth} bits, one transparent", data, values * (255 // (2**depth - 1)), alpha)


def turned(orientation: int) -> ImageFile:
    data = saved(RGB, "PNG", exif=exif(orientation))
    return opaque(f"EXIF orientation {orientation}", data, TURNED[orientation](RGB))


FILES: list[ImageFile] = [
    *(
        opaque(
            f"gray of {depth} bits", png(GRAY >> (8 - depth), depth, 0), (GRAY >> (8 - depth)) * (255 // (2**depth - 1))
        )
        for depth in (1, 2, 4, 8)
    ),
    opaque("gray of 16 bits", png(GRAY16, 16, 0), GRAY),
    opaque("RGB", png(RGB, 8, 2), RGB),
    opaque("RGB of 16 bits", png(RGB16, 16, 2), RGB),
    transparent("gray and alpha", png(np.dstack([GRAY, ALPHA]), 8, 4), GRAY, ALPHA),
    transparent("gray and alpha of 16 bits", png(np.dstack([GRAY16, ALPHA16]), 16, 4), GRAY, ALPHA),
    transparent("RGBA", png(np.dstack([RGB, ALPHA]), 8, 6), RGB, ALPHA),
    transparent("RGBA of 16 bits", png(np.dstack([RGB16, ALPHA16]), 16, 6), RGB, ALPHA),
    *(
        transparent(f"RGBA, all of alpha {alpha}", png(np.dstack([RGB, whole]), 8, 6), RGB, whole)
        for alpha, whole in ((alpha, np.full_like(ALPHA, alpha)) for alpha in (0, 128, 255))
    ),
    opaque("palette", png(ENTRIES, 2, 3, PLTE), PALETTE[ENTRIES]),
    opaque("palette of 8 bits", png(ENTRIES, 8, 3, PLTE), PALETTE[ENTRIES]),
    transparent(
        "palette, one entry transparent",
        png(ENTRIES, 2, 3, PLTE, (b"tRNS", b"\xff\0")),
        PALETTE[ENTRIES],
        np.where(ENTRIES == 1, 0, 255).astype(np.uint8),
    ),
    opaque("palette, more alphas than entries", png(ENTRIES, 2, 3, PLTE, (b"tRNS", b"\0" * 5)), PALETTE[ENTRIES]),
    opaque("palette, more alphas than bytes", png(ENTRIES, 8, 3, PLTE, (b"tRNS", bytes(300))), PALETTE[ENTRIES]),
    opaque("palette, alphas before it", png(ENTRIES, 2, 3, (b"tRNS", b"\0"), PLTE), PALETTE[ENTRIES]),
    transparent(
        "palette, entries of several alphas",
        png(ENTRIES, 4, 3, PLTE, (b"tRNS", b"\0\x80\x40")),
        PALETTE[ENTRIES],
        np.array([0, 128, 64, 255], np.uint8)[ENTRIES],
    ),
    *(keyed(depth) for depth in (1, 2, 4, 8)),
    transparent(
        "RGB, one colour transparent",
        png(RGB, 8, 2, (b"tRNS", RGB[0, 0].astype(">u2").tobytes())),
        RGB,
        np.where((RGB[0, 0] == RGB).all(-1), 0, 255).astype(np.uint8),
    ),
    refused("gray of 16 bits, one transparent", png(GRAY16, 16, 0, (b"tRNS", b"\1\0")), "16 bits with one colour"),
    refused("RGB of 16 bits, one transparent", png(RGB16, 16, 2, (b"tRNS", b"\1\0" * 3)), "16 bits with one colour"),
    opaque("ICC sRGB", png(RGB, 8, 2, iccp(srgb_profile())), RGB),
    opaque("ICC of other primaries", png(RGB, 8, 2, iccp(swapped_profile())), RGB[..., [1, 0, 2]], tolerance=3),
    opaque(
        "ICC of RGB, palette", png(ENTRIES, 8, 3, PLTE, iccp(swapped_profile())), PALETTE[ENTRIES][..., [1, 0, 2]], 3
    ),
    opaque("ICC of RGB, gray", png(GRAY, 8, 0, iccp(swapped_profile())), GRAY, tolerance=3),
    opaque(
        "ICC of other primaries, JPEG",
        saved(SMOOTH, "JPEG", quality=98, icc_profile=swapped_profile()),
        SMOOTH[..., [1, 0, 2]],
        8,
    ),
    transparent("ICC sRGB, RGBA", png(np.dstack([RGB, ALPHA]), 8, 6, iccp(srgb_profile())), RGB, ALPHA),
    opaque("ICC that is none", png(RGB, 8, 2, iccp(b"no profile")), RGB),
    opaque("ICC that cannot be unpacked", png(RGB, 8, 2, (b"iCCP", b"name\0\0no zlib")), RGB),
    opaque("ICC that is empty", png(RGB, 8, 2, (b"iCCP", b"name\0")), RGB),
    *(opaque(f"ICC of {space.decode()}", png(RGB, 8, 2, iccp(profile_of(space))), RGB) for space in (b"CMYK", b"GRAY")),
    refused("ICC of 3 MB", png(RGB, 8, 2, iccp(bytes(3_000_000))), "colour profile of more than"),
    *(turned(orientation) for orientation in TURNED),
    opaque("EXIF orientation 6, JPEG", saved(SMOOTH, "JPEG", quality=98, exif=exif(6)), TURNED[6](SMOOTH), 8),
    opaque("EXIF orientation 6, WebP", saved(RGB, "WEBP", lossless=True, exif=exif(6)), TURNED[6](RGB)),
    opaque("EXIF orientation 77", saved(RGB, "PNG", exif=exif(77)), RGB),
    opaque("EXIF that is none", saved(SMOOTH, "JPEG", quality=98, exif=b"Exif\0\0no EXIF"), SMOOTH, 8),
    opaque("text of 3 MB", saved(RGB, "PNG", pnginfo=text()), RGB),
    opaque("a comment of 64 kB", saved(SMOOTH, "JPEG", quality=98, comment=b"x" * 65_000), SMOOTH, 8),
    opaque("JPEG", saved(SMOOTH, "JPEG", quality=98), SMOOTH, 8),
    opaque("JPEG, gray", saved(SMOOTH[..., 0], "JPEG", quality=98), SMOOTH[..., 0], 8),
    opaque(
        "JPEG, CMYK",
        cmyk_jpeg(),
        ((255 - CMYK[..., :3].astype(int)) * (255 - CMYK[..., 3:].astype(int)) // 255).astype(np.uint8),
        8,
    ),
    opaque(
        "JPEG, several images",
        saved(SMOOTH, "MPO", quality=98, save_all=True, append_images=[Image.new("RGB", (8, 8))]),
        SMOOTH,
        8,
    ),
    opaque("WebP, lossy", saved(SMOOTH, "WEBP", quality=98), SMOOTH, 12),
    opaque("WebP, lossless", saved(RGB, "WEBP", lossless=True), RGB),
    transparent("WebP, RGBA", saved(np.dstack([RGB, ALPHA]), "WEBP", lossless=True, exact=True), RGB, ALPHA),
    opaque("APNG of one frame", saved(RGB, "PNG", save_all=True), RGB),
    opaque("more behind its end", saved(RGB, "PNG") + b"more", RGB),
    opaque("without an end", saved(RGB, "PNG")[:-12], RGB),
    opaque("one pixel", png(RGB[:1, :1], 8, 2), RGB[:1, :1]),
    refused("APNG", animated("PNG"), "animation of 2 frames"),
    refused("WebP, animated", animated("WEBP"), "animation of 2 frames"),
    refused("GIF", saved(RGB, "GIF"), "is GIF,"),
    refused("GIF, animated", animated("GIF"), "is GIF,"),
    refused("TIFF of several pages", animated("TIFF"), "is TIFF,"),
    refused("TIFF of floats", saved(GRAY, "TIFF", "F"), "is TIFF,"),
    refused("TIFF of 32 bits", saved(GRAY, "TIFF", "I"), "is TIFF,"),
    refused("BMP", saved(RGB, "BMP"), "is BMP,"),
    refused("JPEG 2000", saved(NOISE, "JPEG2000"), "is JPEG 2000,"),
    refused("HEIC", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "is HEIC,"),
    refused("AVIF", b"\0\0\0\x1cftypavif\0\0\0\0avifmif1", "is AVIF,"),
    refused("MP4", b"\0\0\0\x20ftypisom\0\0\2\0isomiso2", "is MP4,"),
    refused("SVG", b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>', "is SVG,"),
    refused("PDF", b"%PDF-1.7\n", "is PDF,"),
    refused("text", "Ein schönes Bild".encode(), "is text,"),
    refused("noise", NOISE.tobytes(), "not PNG, JPEG or WebP"),
    refused("nothing", b"", "is empty"),
    refused("PNG, its first bytes", LONG[:8], "broken or cut off"),
    refused("PNG, cut off", LONG[: len(LONG) // 2], "cut off"),
    refused("PNG, damaged", LONG.replace(b"IDAT", b"\0\0\0\0", 1), "broken"),
    refused("JPEG, its first bytes", saved(NOISE, "JPEG")[:20], "broken or cut off"),
    refused("JPEG, cut off", saved(NOISE, "JPEG")[:1000], "cut off"),
    refused("WebP, cut off", saved(NOISE, "WEBP")[:1000], "cut off"),
    refused("no width", png(RGB, 8, 2, size=(0, HEIGHT)), f"has 0 × {HEIGHT} pixels"),
    refused("no height", png(RGB, 8, 2, size=(WIDTH, 0)), f"has {WIDTH} × 0 pixels"),
    refused("too long", png(RGB, 8, 2, size=(1, 20_000)), "at most 16384 a side"),
    refused("a bomb", png(RGB, 8, 2, size=(16_000, 16_000)), "at most 64000000"),
    refused("a bomb beyond all bounds", png(RGB, 8, 2, size=(2**31 - 1, 2**31 - 1)), "at most 16384 a side"),
]
