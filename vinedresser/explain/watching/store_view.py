"""The runs of a store as one table: status, progress, loss and verdict of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from vinedresser.explain.formatting import count, number, shortened
from vinedresser.explain.reports.templating import rendered
from vinedresser.explain.verdicts import verdict
from vinedresser.explain.watching.view import View
from vinedresser.store.reading.reader import Run
from vinedresser.store.step_record import Mode

__all__ = ["Row", "damaged_row", "run_row", "store_view"]

_LONGEST_NAME = 120
_LONGEST_REASON = 400


@dataclass(frozen=True)
class Row:
    """A run in the table.

    Attributes:
        name: name of the run in its store.
        state: its state; "unreadable" if it cannot be read.
        tone: colour of its verdict.
        words: how it ended and what is wrong, in a few words.
        steps: number of optimizer steps done.
        total: number of optimizer steps of the whole run; None if unknown.
        losses: mode and last value of the first loss, training before evaluation.
        findings: number of findings.
        severity: severity of the finding that decides the verdict; "" without one.
        reason: what that finding saw, why it ended, or what the absence of findings rests on.
    """

    name: str
    state: str
    tone: str
    words: str
    steps: int = 0
    total: int | None = None
    losses: Sequence[tuple[str, str]] = ()
    findings: int = 0
    severity: str = ""
    reason: str = ""

    @property
    def link(self) -> str:
        """Address of the run's page."""
        return f"/run/{quote(self.name, safe='', errors='replace')}"

    @property
    def shown(self) -> str:
        """The name, cut to a readable length."""
        return shortened(self.name, _LONGEST_NAME)

    @property
    def share(self) -> float | None:
        """Share of the steps that are done, from 0 to 1; None if the total is unknown."""
        return min(self.steps / self.total, 1.0) if self.total else None


def run_row(name: str, run: Run) -> Row:
    """Return a run's row, as of its last refresh.

    Args:
        name: name of the run in its store.
        run: the run.

    Raises:
        NotARun: it was removed.
        StoreError: the storage refused.
    """
    judged = verdict(run)
    finding = judged.finding
    reason = f"{finding.rule}: {judged.sentence}" if finding else judged.sentence
    return Row(
        name=name,
        state=judged.status.state,
        tone=judged.tone,
        words=judged.status.words if judged.status.state == "stopped" else judged.headline,
        steps=judged.steps,
        total=judged.total,
        losses=_losses(run),
        findings=len(judged.findings),
        severity=finding.severity if finding else "",
        reason=shortened(reason, _LONGEST_REASON),
    )


def damaged_row(name: str, problem: str) -> Row:
    """Return the row of a run that cannot be read."""
    return Row(name, "unreadable", "bad", "unreadable", reason=shortened(problem, _LONGEST_REASON))


def _losses(run: Run) -> list[tuple[str, str]]:
    """Return mode and last value of the first loss, training before evaluation."""
    found: list[tuple[str, str]] = []
    modes: tuple[Mode, ...] = ("train", "eval")
    for column in list(run.scalars("losses").values())[:1]:
        rows = {mode: column.of(mode) for mode in modes}
        found += [(mode, number(float(one.values[-1]))) for mode, one in rows.items() if len(one)]
    return found


def store_view(location: str, rows: Sequence[Row]) -> View:
    """Return the table of a store.

    Args:
        location: directory or address of the store.
        rows: its runs, in the order of `open_store`.
    """
    running = sum(row.state == "running" for row in rows)
    told = sum(row.severity in ("stop", "warning") for row in rows)
    summary = [count(len(rows), "run"), f"{running:,} running", f"{told:,} with findings"]
    html = rendered("store_sections.html.j2", location=location, rows=rows, summary=summary)
    return View(f"{count(len(rows), 'run')} · {location}", "store", html)
