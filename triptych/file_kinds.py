"""What kind of file some bytes are, told by how they begin: names of files and media types are not to be trusted."""

MEDIA_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "WebP": "image/webp"}
"""The kinds that a job may bring along."""

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"8BPS", "Photoshop"),
    (b"%PDF", "PDF"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\0\0\0\x0cJXL ", "JPEG XL"),
    (b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (b"v/1\x01", "OpenEXR"),
    (b"PK\x03\x04", "zip"),
    (b"\x1aE\xdf\xa3", "Matroska"),
)
# Of containers whose fifth byte on is "ftyp": by the brand that follows.
_BRANDS = {b"avif": "AVIF", b"avis": "AVIF", b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIC", b"msf1": "HEIC"}
_LOOKED_AT = 1024


def file_kind(data: bytes) -> str:
    """The kind's name ("PNG", "HEIC", "text"), "" if it is not known."""
    for beginning, kind in _BEGINNINGS:
        if data.startswith(beginning):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP"
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12], "MP4")
    return _text_kind(data[:_LOOKED_AT])


def wrong_kind(data: bytes) -> str:
    """Why these bytes are no file that a job may bring along, and what to do; "" if they may be one."""
    kind = file_kind(data)
    if kind in MEDIA_TYPES:
        return ""
    if not data:
        return "is empty"
    return f"is {f'{kind}, ' if kind else ''}not PNG, JPEG or WebP: convert it"


def _text_kind(beginning: bytes) -> str:
    try:
        # The last character may be cut.
        text = beginning.decode("utf-8-sig", "ignore" if len(beginning) == _LOOKED_AT else "strict")
    except UnicodeDecodeError:
        return ""
    if not text or "\0" in text:
        return ""
    return "SVG" if "<svg" in text else "text"
