"""`triptych fleet --watch`: the fleet and the scheduler's decisions, as they change."""

import sys
from collections import deque
from typing import Any, Protocol

from triptych.cli.fleet_table import (
    ERROR_HEADER,
    POOL_HEADER,
    WORKER_HEADER,
    error_cells,
    pool_cells,
    refusal_lines,
    sorted_workers,
    worker_cells,
)
from triptych.cli.terminal import GAP, Terminal, record, seconds, stage_word
from triptych.client import Client
from triptych.durations import seconds_of
from triptych.v1.router_service_pb2 import Decision, GetFleetResponse, WatchFleetResponse
from triptych.visible_text import visible

_SHOWN_DECISIONS = 15


class Board(Protocol):
    """Shows what comes while it is open."""

    def show(self, response: WatchFleetResponse) -> None:
        """Show a snapshot or a decision."""


async def watch(client: Client, terminal: Terminal, interval_s: float) -> None:
    """Follow the fleet until interrupted: a table on a terminal, else a line each; with `--json` an object each."""
    if not terminal.as_json and sys.stdout.isatty():
        try:
            from rich.live import Live
        except ImportError:
            pass
        else:
            with Live(auto_refresh=False, screen=False) as live:
                await _follow(client, interval_s, Table(live))
            return
    await _follow(client, interval_s, Lines(terminal))


async def _follow(client: Client, interval_s: float, board: Board) -> None:
    async for response in client.watch_fleet(interval_s):
        board.show(response)


class Lines:
    """A line for each decision, for each pool that has changed, and for each model that is newly refused."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._pools: dict[str, str] = {}
        self._refusals: list[str] = []
        self._missed_count = 0

    def show(self, response: WatchFleetResponse) -> None:
        self._terminal.emit(record(response))
        if response.missed_count > self._missed_count:
            self._terminal.say(f"({response.missed_count - self._missed_count} decisions missed)")
            self._missed_count = response.missed_count
        if response.HasField("decision"):
            self._terminal.say(GAP.join(filter(None, cells(response.decision))))
            return
        refusals = refusal_lines(sorted_workers(response.snapshot))
        for line in refusals:
            if line not in self._refusals:
                self._terminal.say(line)
        self._refusals = refusals
        for pool in response.snapshot.pools:
            line = (
                f"pool {pool.name}: {pool.worker_count} workers and {pool.borrowable_count} to borrow, "
                f"{pool.queued_count} queued, "
                f"{pool.running_count} running, {seconds(seconds_of(pool.backlog))} to run per worker"
            )
            if self._pools.get(pool.name) != line:
                self._pools[pool.name] = line
                self._terminal.say(line)


class Table:
    """Workers, pools, the estimates' errors and the newest decisions, drawn anew in place."""

    def __init__(self, live: Any) -> None:
        self._live = live
        self._snapshot = GetFleetResponse()
        self._decisions: deque[Decision] = deque(maxlen=_SHOWN_DECISIONS)
        self._missed_count = 0

    def show(self, response: WatchFleetResponse) -> None:
        if response.HasField("decision"):
            self._decisions.append(response.decision)
        else:
            self._snapshot.CopyFrom(response.snapshot)
        self._missed_count = response.missed_count
        self._live.update(self._drawn(), refresh=True)

    def _drawn(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        workers = sorted_workers(self._snapshot)
        title = "decisions" + (f", {self._missed_count} missed" if self._missed_count else "")
        return Group(
            _table("workers", WORKER_HEADER, [worker_cells(worker) for worker in workers]),
            *(Text(visible(line)) for line in refusal_lines(workers)),
            _table("pools", POOL_HEADER, [pool_cells(pool) for pool in self._snapshot.pools]),
            _table("estimates", ERROR_HEADER, [error_cells(error) for error in self._snapshot.estimate_errors]),
            _table(title, ("TIME", "WHAT", "JOB", "STAGE", "WORKER", "WHY"), [cells(each) for each in self._decisions]),
        )


def _table(title: str, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> Any:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(*header, title=title, title_justify="left", box=box.SIMPLE)
    for row in rows:
        table.add_row(*(Text(visible(cell) or "-") for cell in row))
    return table


def cells(decision: Decision) -> tuple[str, ...]:
    """A decision as a person reads it: when, what, which job, stage, worker, why."""
    time = decision.time.ToDatetime().strftime("%H:%M:%S")
    return (time, decision.kind, decision.job_id, stage_word(decision.stage), decision.worker_id, decision.reason)
