"""A training run that is bounded by time, survives pauses and resumes from its last save."""

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

_SAVE_EVERY_S = 150.0
_REPORT_EVERY = 100  # steps
_LONGEST_STEP_S = 5.0  # a longer step was a pause (or a compilation), which does not use up the budget


class Run:
    """Owns the optimizer, the clock and the saved state of one training run.

    The learning rate warms up over 100 steps and then falls along a cosine over the share of `minutes` that has gone,
    so a run ends well wherever it is started; the number of steps therefore depends on the machine.
    """

    def __init__(self, path: Path, modules: Mapping[str, nn.Module], minutes: float, rate: float) -> None:
        self.step = 0
        self._path, self._modules, self._budget_s, self._rate = path, modules, minutes * 60, rate
        parameters = [p for module in modules.values() for p in module.parameters() if p.requires_grad]
        self._parameters = parameters
        self._optimizer = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.99), weight_decay=0.01, fused=True)
        self._elapsed_s = self._saved_s = 0.0
        self._last = time.monotonic()
        self._losses: list[float] = []

    @property
    def progress(self) -> float:
        """Share of the time budget that is used up, 0 to 1."""
        return min(self._elapsed_s / self._budget_s, 1.0) if self._budget_s else 1.0

    def resume(self) -> None:
        """Takes up the state of an earlier run of the same name, if there is one."""
        if self._path.exists():
            state = torch.load(self._path, weights_only=True)
            for name, module in self._modules.items():
                module.load_state_dict(state["modules"][name])
            self._optimizer.load_state_dict(state["optimizer"])
            self.step, self._elapsed_s = state["step"], state["elapsed_s"]
            self._saved_s = self._elapsed_s
        torch.manual_seed(self.step)
        self._last = time.monotonic()

    def save(self) -> None:
        """Writes the state, replacing the earlier one in one move."""
        self._saved_s = self._elapsed_s
        state = {
            "modules": {name: module.state_dict() for name, module in self._modules.items()},
            "optimizer": self._optimizer.state_dict(),
            "step": self.step,
            "elapsed_s": self._elapsed_s,
        }
        partial = self._path.with_suffix(".partial")
        torch.save(state, partial)
        os.replace(partial, self._path)

    def update(self, loss: Tensor) -> bool:
        """Steps down the gradient of the loss. Returns whether the state was saved, a good time for a look at it."""
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._parameters, 1.0)
        rate = self._rate * min(1.0, (self.step + 1) / 100) * (0.02 + 0.49 * (1 + math.cos(math.pi * self.progress)))
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self._losses.append(loss.item())
        now = time.monotonic()
        self._elapsed_s += min(now - self._last, _LONGEST_STEP_S)
        self._last = now
        if self.step % _REPORT_EVERY == 0:
            self._report()
        if self._elapsed_s - self._saved_s < _SAVE_EVERY_S and self.progress < 1:
            return False
        self.save()
        return True

    def _report(self) -> None:
        mean = sum(self._losses) / len(self._losses)
        self._losses.clear()
        print(f"{self._path.stem} step {self.step} {self._elapsed_s / 60:.1f} min loss {mean:.5f}", flush=True)
