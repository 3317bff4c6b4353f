"""Where computations run, and which workers compute equal bits."""

import hashlib
import platform

import diffusers
import torch
import transformers


def choose_device(name: str) -> torch.device:
    """The device by its name; "auto" takes the first accelerator there is, else the CPU. Raises `ValueError`."""
    if name != "auto":
        try:
            device = torch.device(name)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device: {name!r} cannot be used: {error}") from error
        return device
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def device_label(device: torch.device) -> str:
    """The device in words: "cpu x86_64", "cuda:0 NVIDIA H200"."""
    if device.type == "cuda":
        return f"{device} {torch.cuda.get_device_name(device)}"
    return f"{device} {platform.machine()}"


def numerics_id(device: torch.device) -> str:
    """Equal ids compute equal bits: same device, builds, CPU capability and number of threads."""
    parts = [
        device_label(device).removeprefix(f"{device} "),
        device.type,
        torch.__version__,
        diffusers.__version__,
        transformers.__version__,
        torch.backends.cpu.get_cpu_capability() if device.type == "cpu" else str(torch.version.cuda),
        str(torch.get_num_threads()) if device.type == "cpu" else "",
    ]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()
