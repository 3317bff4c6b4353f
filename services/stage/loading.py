"""Loads the models of a worker's catalog, one after the other, and tries those again that cannot be served."""

import asyncio
import contextlib
import gc
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import torch

from services.stage.beside import beside
from services.stage.checkpoint import Checkpoint
from services.stage.device_speed import device_tflops
from services.stage.library_logs import silence_libraries
from services.stage.load_faults import load_fault

if TYPE_CHECKING:
    from services.stage.worker import WorkerHost

log = structlog.get_logger()
# Characters that a heartbeat has for a model.
_MAX_REASON = 500
# Pauses between two tries of a hub id double up to so many times the first.
_MOST_PAUSES = 128
# Files that are looked at in a folder.
_MAX_FILES = 10_000
_Stamp = tuple[tuple[str, int, int], ...]


@dataclass
class _Refused:
    """A model that cannot be served: what its folder was like when it was tried, and what it was at the last look.

    `passing`: it is tried again at `due_s` (monotonic) too, though its folder stays as it is.
    """

    tried: _Stamp
    seen: _Stamp
    passing: bool
    due_s: float
    pause_s: float


class Loading:
    """A model that cannot be loaded is refused, with its reason, and keeps no other from being served.

    It is tried again when its folder has changed and is at rest; a hub id after a while, then after twice as long.
    `load` runs on the device thread; `told` is called whenever what is served, or why not, has changed.
    """

    def __init__(
        self, host: "WorkerHost", load: Callable[[Checkpoint], None], told: Callable[[], Awaitable[None]]
    ) -> None:
        self._host = host
        self._load_stage = load
        self._told = told
        self._refused: dict[str, _Refused] = {}

    async def first(self) -> None:
        """Try each model once: those in folders first, for the hub may take its time."""
        host = self._host
        host.device_tflops = await host.thread.run((float("-inf"), ""), partial(device_tflops, host.device))
        for name in sorted(host.models, key=lambda name: not self._folder(name).is_dir()):
            await self._try(name, rank_s=float("-inf"))
        silence_libraries()
        if not host.checkpoints:
            log.error("no_model_served", refused=sorted(host.refused))
        log.info("worker_ready", models=sorted(host.checkpoints), refused=sorted(host.refused))
        await self._told()

    async def again(self) -> None:
        """Try those that were refused again, whenever that may pass, until cancelled."""
        while True:
            await asyncio.sleep(self._host.config.retry_seconds)
            for name, refused in list(self._refused.items()):
                if await self._may_pass(name, refused):
                    await self._try(name, rank_s=time.time())
                    await self._told()

    async def _may_pass(self, name: str, refused: _Refused) -> bool:
        """Whether a refused model's folder is another one, and was so at the last look; or its time has come."""
        seen, refused.seen = refused.seen, await beside(partial(_stamp, self._folder(name)))
        is_new = refused.seen != refused.tried and refused.seen == seen
        return is_new or (refused.passing and time.monotonic() >= refused.due_s)

    async def _try(self, name: str, rank_s: float) -> None:
        host, rank = self._host, (rank_s, "~loading")
        stamp = await beside(partial(_stamp, self._folder(name)))
        try:
            checkpoint = await beside(partial(host.open_checkpoint, name))
            await host.thread.run(rank, partial(self._load, checkpoint), on_pause=self._note_pause)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other models are served
            self._refuse(name, error, stamp)
        else:
            self._refused.pop(name, None)
            host.serve(checkpoint)
            return
        # The part of it that was loaded is of no use. Only here: until the exception is gone, it holds that part.
        await host.thread.run(rank, _collect)

    def _load(self, checkpoint: Checkpoint) -> None:
        self._host.loading = True
        try:
            self._load_stage(checkpoint)
        finally:
            self._host.loading = False

    def _note_pause(self, paused: bool) -> None:
        """The load has given way to other work, or goes on."""
        self._host.loading = not paused

    def _refuse(self, name: str, error: Exception, stamp: _Stamp) -> None:
        host = self._host
        fault = load_fault(name, host.models[name].checkpoint, error)
        why = fault.why.replace(f"{host.catalog.folder}/", "")[:_MAX_REASON]
        if host.refused.get(name) != why:
            log.error("model_refused", model=name, why=why)
            log.debug("model_refused_by", model=name, exc_info=error)
        host.refused[name] = why
        known = self._refused.get(name)
        first_s = host.config.retry_seconds
        pause_s = first_s if known is None else min(2 * known.pause_s, _MOST_PAUSES * first_s)
        passing = fault.passing or not self._folder(name).is_dir()
        self._refused[name] = _Refused(stamp, stamp, passing, time.monotonic() + pause_s, pause_s)

    def _folder(self, name: str) -> Path:
        """Where it lies, unless that is a hub id."""
        return self._host.catalog.folder / self._host.models[name].checkpoint


def _stamp(folder: Path) -> _Stamp:
    """Names, sizes and times of the files in a folder and in those in it; () if there is none, or it cannot be read."""
    stamps = []
    with contextlib.suppress(OSError):
        for path in islice((path for pattern in ("*", "*/*") for path in folder.glob(pattern)), _MAX_FILES):
            with contextlib.suppress(FileNotFoundError):  # it has gone meanwhile
                stat = path.stat()
                stamps.append((str(path), stat.st_size, stat.st_mtime_ns))
    return tuple(sorted(stamps))


def _collect() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
