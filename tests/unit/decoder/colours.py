"""Colours on their way through a file: what a viewer or a player shows of flat areas."""

import io

import av
import numpy as np
from av.video.reformatter import ColorRange, Colorspace, Interpolation
from PIL import Image

COLOURS = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "cyan": (0, 255, 255),
    "magenta": (255, 0, 255),
    "grey": (128, 128, 128),
    "shadow": (16, 16, 16),
    "light skin": (224, 172, 105),
    "dark skin": (91, 57, 33),
}
# Of 255, in each channel.
TOLERANCE = 3
# What a file's matrix is called there (ITU-T H.273), and what FFmpeg converts by.
MATRICES = {1: Colorspace.ITU709, 5: Colorspace.ITU601, 6: Colorspace.ITU601}
_CELLS = (4, 3)


def board(size: tuple[int, int], turn: int = 0) -> Image.Image:
    """All colours, each in a cell of its own; the next turn has each in the next cell."""
    colours = np.roll(np.array(list(COLOURS.values()), np.uint8), turn, axis=0)
    cells = Image.fromarray(colours.reshape(_CELLS[1], _CELLS[0], 3))
    return cells.resize(size, Image.Resampling.NEAREST)


def far_off(shown: np.ndarray, made: Image.Image) -> int:  # type: ignore[type-arg]
    """By how much the worst pixel is off, but for the outer quarters of the cells: there colours run into others."""
    differences = np.abs(shown.astype(int) - np.asarray(made))
    columns, rows = (_inner(side, count) for side, count in zip(made.size, _CELLS, strict=True))
    return int(differences[np.ix_(rows, columns)].max())


def shown(frame: av.VideoFrame, matrix: Colorspace) -> np.ndarray:  # type: ignore[type-arg]
    """A video's frame as a player shows it that takes this matrix, and limited range."""
    return frame.reformat(
        format="rgb24",
        src_colorspace=matrix,
        dst_colorspace=matrix,
        src_color_range=ColorRange.MPEG,
        dst_color_range=ColorRange.JPEG,
        interpolation=Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT,
    ).to_ndarray()


def decoded(data: bytes) -> list[av.VideoFrame]:
    """Every frame of a video."""
    with av.open(io.BytesIO(data)) as container:
        return list(container.decode(video=0))


def _inner(side: int, count: int) -> list[int]:
    cell = side / count
    return [at for at in range(side) if 0.25 <= (at + 0.5) / cell % 1 <= 0.75]
