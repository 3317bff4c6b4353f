"""Clean latents on their way from the device into a message."""

from typing import Any

import torch
from torch.nn.functional import avg_pool2d, avg_pool3d

# A message of NATS holds 8 MB.
MAX_LATENT_BYTES = 4 * 1024 * 1024
# Handing so little to another thread takes longer than to work on it.
SMALL_BYTES = 64 * 1024


class HostCopy:
    """A copy of a tensor on the host, in half precision, that was begun with the object; any thread may wait for it.

    A device is not waited for to begin it: it may have work queued that has not run yet.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        half = tensor.detach().to(torch.float16)
        self._copied: Any = None
        if half.device.type != "cuda":
            self._half = half.clone() if half.dtype == tensor.dtype else half.cpu()
            return
        self._half = torch.empty(half.shape, dtype=half.dtype, pin_memory=True)
        self._half.copy_(half, non_blocking=True)
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._copied.record()

    @property
    def is_quick(self) -> bool:
        """Whether it is small, and has not to be waited for."""
        return self._copied is None and self._half.nbytes <= SMALL_BYTES

    def wait(self) -> torch.Tensor:
        """The copy, once it is complete."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._half


def shrunk(latents: torch.Tensor) -> torch.Tensor:
    """Averaged over squares of cells until they fit into a message. Raises `ValueError` if they cannot be made to fit.

    Latents are (b, channels, [frames,] h, w), or of a layout that only the decode blocks know, which stays as it is.
    """
    while latents.nbytes > MAX_LATENT_BYTES:
        if latents.ndim not in (4, 5) or min(latents.shape[-2:]) < 2:
            raise ValueError(f"latents of {latents.nbytes} bytes; at most {MAX_LATENT_BYTES} can be sent")
        pooled = avg_pool3d(latents.float(), (1, 2, 2)) if latents.ndim == 5 else avg_pool2d(latents.float(), 2)
        latents = pooled.to(torch.float16)
    return latents
