"""Pictures from what a decode block gives: stock conversion, but not on the device thread."""

from typing import Any, TypeAlias

import numpy as np
from diffusers.image_processor import VaeImageProcessor
from PIL import Image

# Pictures, or frames × height × width × channels in 0 to 1.
Frames: TypeAlias = list[Image.Image] | np.ndarray[Any, Any]


def frames_of(result: Any) -> Frames:
    """One output's frames: of a picture one, of a video all."""
    if isinstance(result, np.ndarray):
        return result if result.ndim == 4 else result[None]
    return list(result) if isinstance(result, list | tuple) else [result]


def pictures(frames: Frames) -> list[Image.Image]:
    """The frames as pictures of 8 bits, rounded as diffusers does it."""
    if isinstance(frames, np.ndarray):
        made: list[Image.Image] = VaeImageProcessor.numpy_to_pil(frames)
        return made
    return frames
