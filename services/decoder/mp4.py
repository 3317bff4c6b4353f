"""MP4 files: H.264 that says which colours it has, written in memory."""

import io
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import av
import numpy as np
from av.video.reformatter import ColorRange, Colorspace, Interpolation, VideoReformatter
from PIL import Image

# x264's constant rate factor: 18 is taken to be visually lossless.
_QUALITY = "18"
# Players that ignore what a file says take BT.709 from this height on, and BT.601 below it, as browsers do.
HD_HEIGHT = 720
# Of ITU-T H.273: matrices, limited range, and sRGB's primaries and transfer.
_BT709, _BT601 = 1, 6
_LIMITED, _PRIMARIES, _TRANSFER = 1, 1, 13
_EXACT = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INP


def mp4(frames: Sequence[Image.Image], rate: Fraction) -> bytes:
    """Return the file of frames that have even sides, its index first so that players can start before its end."""
    file = io.BytesIO()

    def read_again(*_: object) -> io.BytesIO:
        """Return what is written so far: to move the index to the front, the file is opened once more."""
        return io.BytesIO(file.getvalue())

    options = {"movflags": "faststart"}
    with av.open(file, "w", format="mp4", options=options, io_open=read_again) as container:
        stream = container.add_stream("libx264", rate=rate, options={"crf": _QUALITY, "preset": "veryfast"})
        stream.width, stream.height = frames[0].size
        stream.pix_fmt = "yuv420p"
        is_hd = stream.height >= HD_HEIGHT
        _tag(stream.codec_context, is_hd)
        reformatter = VideoReformatter()
        for index, frame in enumerate(frames):
            converted = _converted(reformatter, frame, is_hd)
            converted.pts, converted.time_base = index, 1 / rate
            container.mux(stream.encode(converted))
        container.mux(stream.encode())
    return file.getvalue()


def _tag(context: Any, is_hd: bool) -> None:
    context.colorspace = _BT709 if is_hd else _BT601
    context.color_range, context.color_primaries, context.color_trc = _LIMITED, _PRIMARIES, _TRANSFER


def _converted(reformatter: VideoReformatter, frame: Image.Image, is_hd: bool) -> av.VideoFrame:
    """Return the frame in the matrix and the range that the file names: left to itself, FFmpeg takes BT.601."""
    return reformatter.reformat(
        av.VideoFrame.from_ndarray(np.asarray(frame.convert("RGB")), format="rgb24"),
        format="yuv420p",
        dst_colorspace=Colorspace.ITU709 if is_hd else Colorspace.ITU601,
        src_color_range=ColorRange.JPEG,
        dst_color_range=ColorRange.MPEG,
        interpolation=_EXACT,
    )
