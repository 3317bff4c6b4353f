"""What the processes of a suite hold: memory, threads, descriptors; and what lies in JetStream."""

import contextlib
import os
from collections.abc import Mapping

import psutil

from triptych.exchange import Exchange

MIB = 1 << 20

# Figures by name, by the name of a process or a stream.
Vitals = dict[str, dict[str, float]]


def process_vitals(pids: Mapping[str, int | None]) -> Vitals:
    """Of each process, and of this one ("customers"). One that is down is left out."""
    found: Vitals = {}
    for name, pid in {**pids, "customers": os.getpid()}.items():
        if pid is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                found[name] = {
                    "rss_mb": process.memory_info().rss / MIB,
                    "threads": float(process.num_threads()),
                    "descriptors": float(process.num_fds()),
                }
    return found


async def stream_vitals(exchange: Exchange) -> Vitals:
    """Of each JetStream stream."""
    return {
        f"stream {info.config.name}": {
            "mb": info.state.bytes / MIB,
            "messages": float(info.state.messages),
            "consumers": float(info.state.consumer_count),
        }
        for info in await exchange.jetstream.streams_info()
    }
