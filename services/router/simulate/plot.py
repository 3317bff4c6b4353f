"""Pictures of runs: how delays are distributed, and what the workers did."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from services.router.core.job import Stage
from services.router.simulate.device import Span
from services.router.simulate.simulation import Run

SUFFIXES = (".svg", ".png")
_GANTT_JOBS = 60
_MAX_SPANS = 4000
_LEAST_S = 0.01


class PlotError(ValueError):
    """A picture that cannot be drawn; says why."""


def check_path(path: Path) -> None:
    """Raise `PlotError` unless a picture can be written there, before anything long is computed."""
    if path.suffix not in SUFFIXES:
        raise PlotError(f"{path}: can write {' and '.join(SUFFIXES)} only")
    if not path.parent.is_dir():
        raise PlotError(f"{path}: there is no folder {path.parent}")
    if find_spec("matplotlib") is None:
        raise PlotError("pictures need matplotlib: pip install 'triptych[simulate]'")


def draw(runs: Sequence[Run], path: Path) -> None:
    """Write the delays of every run, by class, and the workers' time in that with the most pauses.

    Equal runs give equal bytes. Raises `PlotError`.
    """
    check_path(path)
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "triptych", "svg.fonttype": "none", "path.simplify_threshold": 1.0}):
        kinds = sorted({outcome.job.kind for outcome in runs[0].outcomes})
        figure = Figure(figsize=(4.5 * max(2, len(kinds)), 7.5), layout="constrained")
        grid = figure.add_gridspec(2, len(kinds))
        for column, kind in enumerate(kinds):
            _draw_delays(figure.add_subplot(grid[0, column]), runs, kind)
        _draw_workers(figure.add_subplot(grid[1, :]), max(runs, key=lambda run: len(_pauses(run.spans))))
        metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        try:
            figure.savefig(path, metadata=metadata, dpi=120)
        except OSError as error:
            raise PlotError(f"cannot write {path}: {error}") from error


def _draw_delays(axes: Any, runs: Sequence[Run], kind: str) -> None:
    """The share of all jobs of the kind that were not delayed longer than so. Refused ones never get there."""
    for run in runs:
        outcomes = [outcome for outcome in run.outcomes if outcome.job.kind == kind]
        delays = sorted(max(_LEAST_S, outcome.delay_s) for outcome in outcomes if outcome.succeeded)
        places, shares = _thinned(delays, len(outcomes))
        axes.step([*places[:1], *places], [0.0, *shares][: len(places) + 1], where="post", label=run.policy.name)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_title(kind)
    axes.set_xlabel("delay beyond a job's own time, s")
    axes.set_ylabel("share of all jobs")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="upper left")


def _thinned(delays: Sequence[float], job_count: int) -> tuple[list[float], list[float]]:
    """At most some hundred points of the distribution."""
    every = max(1, len(delays) // 300)
    indices = [*range(0, len(delays), every)]
    if delays and indices[-1] != len(delays) - 1:
        indices.append(len(delays) - 1)
    return [delays[index] for index in indices], [(index + 1) / job_count for index in indices]


def _draw_workers(axes: Any, run: Run) -> None:
    """The stretch of time in which most was paused: who ran on which denoiser, and who waited there for it."""
    spans = [span for span in run.spans if span.task.stage is Stage.DENOISE]
    start_s, end_s = _window(run)
    shown = [span for span in spans if span.end_s > start_s and span.start_s < end_s][:_MAX_SPANS]
    workers = sorted({span.worker_id for span in spans})
    rows = {worker: row for row, worker in enumerate(workers)}
    kinds = {outcome.job.job_id: outcome.job.kind for outcome in run.outcomes}
    names = sorted(set(kinds.values()))
    for index, kind in enumerate(names):
        of_kind = [span for span in shown if kinds[span.task.job_id] == kind]
        _bars(axes, of_kind, rows, 0.7, color=f"C{index}", edgecolor="white", linewidth=0.3, label=kind)
    _bars(axes, _pauses(shown), rows, 0.12, color="black", label="a job paused")
    axes.set_xlim(start_s, end_s)
    axes.set_ylim(len(workers) - 0.4, -0.6)
    axes.set_yticks(range(len(workers)), workers)
    axes.set_xlabel("s")
    axes.set_title(f"workers under {run.policy.name}")
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=min(6, len(names) + 1))


def _bars(
    axes: Any, spans: Sequence[Span], rows: Mapping[str, int], height: float, *, label: str, **style: Any
) -> None:
    """A row of bars a worker, under one name."""
    by_worker: dict[str, list[tuple[float, float]]] = {}
    for span in spans:
        by_worker.setdefault(span.worker_id, []).append((span.start_s, span.end_s - span.start_s))
    for number, (worker, bars) in enumerate(sorted(by_worker.items())):
        axes.broken_barh(bars, (rows[worker] - height / 2, height), label=label if number == 0 else None, **style)


def _pauses(spans: Sequence[Span]) -> list[Span]:
    """The gaps between two stretches of one task on one worker."""
    pauses = []
    last: dict[tuple[str, str], Span] = {}
    for span in spans:
        before = last.get((span.worker_id, span.task.job_id))
        if before is not None and span.start_s > before.end_s:
            pauses.append(Span(span.worker_id, span.task, before.end_s, span.start_s))
        last[span.worker_id, span.task.job_id] = span
    return pauses


def _window(run: Run) -> tuple[float, float]:
    """Of windows of so many arrivals that with the most pauses; the first of equals."""
    arrivals = sorted(outcome.job.arrival_s for outcome in run.outcomes)
    starts = arrivals[:: max(1, _GANTT_JOBS // 2)]
    pauses = _pauses([span for span in run.spans if span.task.stage is Stage.DENOISE])
    best = (-1, 0.0, 0.0)
    for index, start_s in enumerate(starts):
        end_s = arrivals[min(len(arrivals) - 1, index * (_GANTT_JOBS // 2) + _GANTT_JOBS)]
        inside = sum(start_s <= pause.start_s < end_s for pause in pauses)
        if inside > best[0] and end_s > start_s:
            best = (inside, start_s, end_s)
    return best[1], best[2] or max((span.end_s for span in run.spans), default=1.0)
