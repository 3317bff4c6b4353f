"""What lies paused is measured, not guessed."""

import gc
import platform

import pytest
import torch

from services.stage.device_memory import allocated_on

_KIB = 1024


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a CPU's memory is told by glibc alone")
@pytest.mark.parametrize(("count", "kib"), [(1, 64 * _KIB), (512, 128)])
def test_on_a_cpu_tensors_large_and_small_count(count: int, kib: int) -> None:
    gc.collect()  # what earlier tests left behind must not be freed between the two looks
    allocated = allocated_on(torch.device("cpu"))
    before = allocated()
    tensors = [torch.zeros(kib * _KIB, dtype=torch.uint8) for _ in range(count)]
    held = allocated() - before
    assert 0.9 < held / sum(tensor.nbytes for tensor in tensors) < 1.2
    del tensors
    assert allocated() - before < 0.1 * held


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_it_is_torchs_account() -> None:
    device = torch.device("cuda")
    allocated = allocated_on(device)
    before = allocated()
    held = torch.zeros(64 * _KIB * _KIB, dtype=torch.uint8, device=device)
    assert allocated() - before == held.nbytes
