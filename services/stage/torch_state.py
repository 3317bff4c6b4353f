"""What torch keeps for a thread and code sets for a while: kept apart for work that shares one thread."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class TorchState:
    """Grad mode and autocast of this thread."""

    grad: bool
    autocast: tuple[tuple[str, bool, torch.dtype], ...]

    @classmethod
    def current(cls) -> "TorchState":
        return cls(
            torch.is_grad_enabled(),
            tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _DEVICES),
        )

    def restore(self) -> None:
        torch.set_grad_enabled(self.grad)
        for kind, enabled, dtype in self.autocast:
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, dtype)


_DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
