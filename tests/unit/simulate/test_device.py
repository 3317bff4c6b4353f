"""A modelled worker: which call runs, and when it switches."""

import pytest

from services.router.core.job import Stage, Task
from services.router.simulate.device import Call, Device, Span


def call(job_id: str, rank: float, seconds: float) -> Call:
    return Call(Task(job_id, Stage.DENOISE), rank, seconds)


def play(device: Device) -> list[tuple[str, float]]:
    """Let everything run to its end: who ends, and when."""
    ends = []
    while device.running is not None:
        now = device.next_s
        ended = device.advance(now)
        if ended is not None:
            ends.append((ended.task.job_id, pytest.approx(now)))
    return ends


def test_it_switches_at_the_end_of_a_block_and_loses_nothing() -> None:
    spans: list[Span] = []
    device = Device("w", block_s=0.5, spans=spans)
    device.give(call("long", 10.0, 4.0), 0.0)
    device.give(call("short", 1.0, 1.0), 1.2)
    assert device.next_s == 1.5
    assert play(device) == [("short", 2.5), ("long", 5.0)]
    assert [(span.task.job_id, span.start_s, span.end_s) for span in spans] == [
        ("long", 0.0, 1.5),
        ("short", 1.5, 2.5),
        ("long", 2.5, 5.0),
    ]
    assert device.busy_s == 5.0


def test_without_blocks_it_switches_between_calls() -> None:
    device = Device("w")
    device.give(call("long", 10.0, 4.0), 0.0)
    device.give(call("longer", 20.0, 5.0), 0.5)
    device.give(call("short", 1.0, 1.0), 1.2)
    assert play(device) == [("long", 4.0), ("short", 5.0), ("longer", 10.0)]


def test_a_worse_ranked_one_waits_for_the_end() -> None:
    device = Device("w", block_s=0.5)
    device.give(call("short", 1.0, 3.0), 0.0)
    device.give(call("long", 10.0, 4.0), 0.2)
    assert play(device) == [("short", 3.0), ("long", 7.0)]


def test_a_call_that_comes_at_the_end_of_a_block_runs_at_once() -> None:
    device = Device("w", block_s=0.5)
    device.give(call("long", 10.0, 4.0), 0.0)
    device.give(call("short", 1.0, 1.0), 1.0)
    assert device.next_s == 1.0


def test_what_is_stopped_tells_what_it_has_done() -> None:
    device = Device("w", block_s=0.5)
    device.give(call("long", 10.0, 4.0), 0.0)
    device.give(call("short", 1.0, 1.0), 1.0)
    device.advance(1.0)
    paused = device.stop(Task("long", Stage.DENOISE), 1.5)
    running = device.stop(Task("short", Stage.DENOISE), 1.75)
    assert paused is not None
    assert running is not None
    assert (paused.done_s, running.done_s, device.running) == (1.0, 0.75, None)
    assert device.stop(Task("other", Stage.DENOISE), 2.0) is None


def test_loading_comes_before_the_first_block() -> None:
    device = Device("w", block_s=0.5)
    device.give(call("a", 1.0, 1.0), 0.0, load_s=3.0)
    assert play(device) == [("a", 4.0)]
