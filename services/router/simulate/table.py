"""Reports as text for a person."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_TENANTS_SHOWN = 5


def summary(reports: Sequence[Mapping[str, Any]]) -> str:
    """All runs, one under the other: by class, then each run as a whole, then by length, then the largest tenants."""
    names = [report["policy"] for report in reports]
    parts = [
        _table(
            ("CLASS", "POLICY", "JOBS", "WAIT P50", "P90", "P99", "DELAY P50", "P90", "P99", *_STRETCH),
            _classes(reports),
        ),
        _table(
            ("POLICY", "IN TIME", "BY TENANT", "LATE", "BUSY", "FAIRNESS", "REFUSED"),
            [_whole(report) for report in reports],
        ),
        "Jobs in time, of all / refused, by length\n" + _table(("LENGTH", "JOBS", *names), _groups(reports, "lengths")),
    ]
    if len(reports[0]["tenants"]) > 1:
        title = "Jobs in time, of all / refused, of the tenants with the most jobs\n"
        parts.append(title + _table(("TENANT", "JOBS", *names), _largest(_groups(reports, "tenants"))))
    return "\n\n".join(parts)


def errors_line(errors: Mapping[str, float]) -> str:
    """How far estimates are off."""
    learnt, constant, model = (f"{errors[name]:.1f} s" for name in ("learnt", "constant", "model_mean"))
    return f"Median absolute error of estimates: {learnt} learnt, {constant} of a constant, {model} of a mean a model"


_STRETCH = ("STRETCH P50", "P90", "P99", "MAX", "REFUSED")


def _classes(reports: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    for kind in reports[0]["classes"]:
        for report in reports:
            found = report["classes"][kind]
            times = [_seconds(found[f"{q}_{what}_s"]) for what in ("wait", "delay") for q in ("p50", "p90", "p99")]
            stretches = [_figure(found[f"{q}_stretch"]) for q in ("p50", "p90", "p99", "max")]
            yield [kind, report["policy"], str(found["jobs"]), *times, *stretches, str(found["rejected"])]


def _whole(report: Mapping[str, Any]) -> list[str]:
    shares = [_percent(report[name]) for name in ("goodput", "tenant_goodput", "late_share", "utilisation")]
    refused = ", ".join(f"{count} {reason}" for reason, count in report["rejected"].items())
    return [report["policy"], *shares, f"{report['fairness']:.2f}", refused or "0"]


def _groups(reports: Sequence[Mapping[str, Any]], key: str) -> list[list[str]]:
    rows = []
    for name, first in reports[0][key].items():
        found = [report[key][name] for report in reports]
        cells = [f"{_percent(one['goodput'])} / {_percent(one['rejected'] / one['jobs'])}" for one in found]
        rows.append([name, str(first["jobs"]), *cells])
    return rows


def _largest(rows: list[list[str]]) -> list[list[str]]:
    return sorted(rows, key=lambda row: (-int(row[1]), row[0]))[:_TENANTS_SHOWN]


def _table(header: Sequence[str], rows: Iterator[list[str]] | list[list[str]]) -> str:
    lines = [list(header), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} s"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"
