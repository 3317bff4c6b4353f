"""What became of every job: the figures that a proof program is judged by. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bench.trial.orders import Fate, Order
from bench.trial.runs import Run, denoiser_runs, time_of
from triptych.endings import is_terminal
from triptych.v1.job_pb2 import JobEvent, JobSpec, Preview

MAX_DETAILS = 40


@dataclass(slots=True)
class Entry:
    """One accepted job. `seen`: its events as its customer got them, by sequence; of one that is over just how many.

    Times in seconds since the epoch; `began_s`: its first stage's start, 0 before. `runs`: of a long job that is over.
    """

    job_id: str
    order: Order
    accepted_s: float
    seen: dict[int, bytes] = field(default_factory=dict)
    seen_count: int = 0
    began_s: float = 0.0
    end: str = ""
    ended_s: float = 0.0
    runs: list[Run] = field(default_factory=list)
    attempts: int = 1
    deed_done: bool = False


@dataclass(slots=True)
class Accounts:
    """Every accepted job, and what went wrong, in words."""

    entries: dict[str, Entry] = field(default_factory=dict)
    wrong: Counter[str] = field(default_factory=Counter)
    details: list[str] = field(default_factory=list)
    shed: Counter[str] = field(default_factory=Counter)
    refused_deeds: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    disconnects: int = 0
    previews: int = 0
    unanswered: int = 0

    def accept(self, job_id: str, order: Order, now_s: float) -> Entry:
        """A router has said yes. The same yes twice is one job."""
        return self.entries.setdefault(job_id, Entry(job_id, order, now_s))

    def fault(self, what: str, job_id: str, detail: str) -> None:
        """Something that must not be: `what` is one of the figures."""
        self.wrong[what] += 1
        if len(self.details) < MAX_DETAILS:
            self.details.append(f"{what}: job {job_id}: {detail}")

    def see(self, entry: Entry, event: JobEvent) -> None:
        """An event came to the customer; one that came before must be the same."""
        if event.HasField("stage_started") and not entry.began_s:
            entry.began_s = time_of(event)
        data = event.SerializeToString(deterministic=True)
        if entry.seen.setdefault(event.sequence, data) != data:
            self.fault("duplicated", entry.job_id, f"two events have the sequence {event.sequence}")

    def preview(self, entry: Entry, preview: Preview) -> None:
        """A preview came: of this job, and of a job that wanted some."""
        self.previews += 1
        if preview.job_id != entry.job_id or not entry.order.spec.HasField("preview"):
            self.fault("duplicated", entry.job_id, f"a preview of job {preview.job_id} came to its customer")

    def close(self, entry: Entry, log: Sequence[JobEvent], now_s: float) -> None:
        """The job is over, and this is its whole log."""
        for flaw in flaws(log, entry.order.spec.output_count or 1):
            self.fault("duplicated", entry.job_id, flaw)
        for event in log:
            self.see(entry, event)
        if len(entry.seen) != len(log):
            self.fault("duplicated", entry.job_id, "its customer saw events that its log has no more")
        entry.end, entry.ended_s, entry.attempts = kind_of(log[-1]), now_s, log[-1].attempt
        if entry.order.long:
            entry.runs = denoiser_runs(log)
        allowed = expected_ends(entry.order.fate)
        if entry.end not in allowed:
            what = "failed" if entry.end == "failed" else "wrong_end"
            self.fault(what, entry.job_id, f"{entry.order.fate} but {entry.end}: {log[-1].failed.error.message}")
        # What is not asked for from here on would pass for a leak.
        entry.seen, entry.seen_count = {}, len(entry.seen)
        entry.order = replace(entry.order, spec=JobSpec())

    def audit(self, job_ids: set[str] | None = None, stored: Mapping[str, int] | None = None) -> None:
        """Find what is not over; compare with the jobs that the router lists at the end, and with how long each log is.

        Either is left out if None: what is stored has expired.
        """
        for entry in self.entries.values():
            if not entry.end:
                self.fault("lost", entry.job_id, f"not over at the end ({entry.order.kind or entry.order.fate})")
            elif job_ids is not None and entry.job_id not in job_ids:
                self.fault("lost", entry.job_id, "the router does not list it")
            elif stored is not None and stored.get(entry.job_id) != entry.seen_count:
                count = stored.get(entry.job_id, 0)
                self.fault("duplicated", entry.job_id, f"{count} events are stored, {entry.seen_count} were seen")
        strangers = (job_ids or set()) - set(self.entries)
        for job_id in sorted(strangers)[self.unanswered :]:
            self.fault("duplicated", job_id, "listed, but no customer was told of it")

    def summary(self) -> dict[str, object]:
        """The figures. `accepted`: jobs that are to succeed."""
        by_fate = {fate: [entry for entry in self.entries.values() if entry.order.fate is fate] for fate in Fate}
        due = by_fate[Fate.KEPT] + by_fate[Fate.AMENDED]
        return {
            "jobs": len(self.entries),
            "orders": dict(Counter("long" if each.order.long else each.order.fate for each in self.entries.values())),
            "accepted": len(due),
            "succeeded": sum(entry.end == "succeeded" for entry in due),
            "compared": sum(bool(entry.order.kind) and entry.end == "succeeded" for entry in due),
            **{what: self.wrong[what] for what in ("failed", "lost", "duplicated", "wrong_bytes", "wrong_end")},
            "cancelled_or_left": dict(Counter(entry.end for fate in _ENDED for entry in by_fate[fate])),
            "poison": dict(Counter(entry.end for entry in by_fate[Fate.POISON])),
            "amended": sum(entry.deed_done for entry in by_fate[Fate.AMENDED]),
            "refused_deeds": dict(self.refused_deeds),
            "disconnects": self.disconnects,
            "previews": self.previews,
            "shed": dict(self.shed),
            "client_errors": dict(self.errors),
            "details": self.details,
        }

    @property
    def sound(self) -> bool:
        """Whether nothing went wrong, and something went right."""
        return not self.wrong.total() and any(entry.end == "succeeded" for entry in self.entries.values())


_ENDED = (Fate.CANCELLED, Fate.LEFT)


def expected_ends(fate: Fate) -> frozenset[str]:
    """The ends that a job may have. Whoever cancels may come too late."""
    if fate is Fate.POISON:
        return frozenset({"failed"})
    return frozenset({"succeeded", "cancelled"} if fate in _ENDED else {"succeeded"})


def kind_of(event: JobEvent) -> str:
    """The event's kind: "queued", …"""
    return event.WhichOneof("event") or ""


def flaws(log: Sequence[JobEvent], output_count: int) -> list[str]:
    """What a log must never be: gaps or doubles, two ends, two outputs of one index, terms that go back."""
    found = []
    if [event.sequence for event in log] != list(range(1, len(log) + 1)):
        found.append("its log has gaps or doubles")
    if [is_terminal(event) for event in log] != [False] * (len(log) - 1) + [True]:
        found.append("its log has not one end, at the end")
    if [event.epoch for event in log] != sorted(event.epoch for event in log):
        found.append("its log has an older term after a newer one")
    made = [event.output.index for event in log if kind_of(event) == "output"]
    if len(made) != len(set(made)):
        found.append(f"an output was made twice: {made}")
    if log and kind_of(log[-1]) == "succeeded" and set(made) != set(range(output_count)):
        found.append(f"it succeeded with the outputs {made}")
    return found
