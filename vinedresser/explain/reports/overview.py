"""Head of a report: the run, how it ended, its duration and the steps saved."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from vinedresser.explain.formatting import count, duration, number, plain
from vinedresser.explain.verdicts import attributed, steps_done
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.series import Columns
from vinedresser.store.records import RemedyRecord, lost_records
from vinedresser.store.status import Status

__all__ = ["Overview", "Tile", "overview"]


@dataclass(frozen=True)
class Tile:
    """A key number.

    Attributes:
        title: name of the number.
        value: the number.
        note: explanation, "" for none.
        share: length of a bar, from 0 to 1; None for no bar.
    """

    title: str
    value: str
    note: str = ""
    share: float | None = None


@dataclass(frozen=True)
class Overview:
    """Contents of the head of the page.

    Attributes:
        name: name of the run.
        status: status of the run.
        headline: the status in a few words.
        tiles: steps, steps saved, duration, last loss, lost records.
        parameters: hyperparameters as text.
        facts: command, versions and identifiers as text.
        steps_run: number of finished optimizer steps.
        remedy: the stopped run that this run retries, with the change; None for other runs.
        first_report: report of the first of these runs, as a URL relative to this report, or "".
    """

    name: str
    status: Status
    headline: str
    tiles: Sequence[Tile]
    parameters: Sequence[tuple[str, str]]
    facts: Sequence[tuple[str, str]]
    steps_run: int
    remedy: RemedyRecord | None
    first_report: str


def overview(run: Run, losses: Columns) -> Overview:
    """Return the head of the page.

    Args:
        run: the run.
        losses: losses of the run.
    """
    status = attributed(run.status, run.findings())
    steps_run = steps_done(run, status)
    remedy = RemedyRecord.from_json(run.info.remedy) if run.info.remedy else None
    first = quote(remedy.first, errors="replace") if remedy else ""
    return Overview(
        name=run.info.name,
        status=status,
        headline=_headline(status),
        tiles=[
            *_step_tiles(run, status, steps_run),
            *_duration_tile(run, status, steps_run),
            *_loss_tile(losses),
            *_lost_tile(run),
        ],
        parameters=[(key, plain(value)) for key, value in _flat(run.info.parameters)],
        facts=_facts(run),
        steps_run=steps_run,
        remedy=remedy,
        first_report=f"../{first}/report.html" if remedy else "",
    )


def _headline(status: Status) -> str:
    if status.state == "stopped":
        who = {"rule": f"by {status.rule}", "sweep": "by its sweep"}
        who |= {"person": "on request", "owner": "by the end of its owner"}
        return f"Stopped {who.get(status.by, '')}".rstrip()
    if status.state == "killed" and status.signal:
        return f"Killed by {status.signal}"
    if status.state == "crashed" and status.code is not None:
        return f"Crashed with exit code {status.code}"
    return {"dead": "Died unexpectedly", "running": "Still running"}.get(
        status.state, status.state.capitalize()
    )


def _step_tiles(run: Run, status: Status, steps_run: int) -> list[Tile]:
    total = run.info.total_steps
    if not total:
        return [Tile("Steps run", f"{steps_run:,}", "total unknown")]
    share = min(steps_run / total, 1.0)
    tiles = [Tile("Steps run", f"{steps_run:,}", f"of {total:,}", share)]
    left = total - steps_run
    if saved := status.steps_saved(total):
        tiles.append(Tile("Steps saved", f"{saved:,}", f"{saved / total:.0%} of the run"))
    elif status.over and left > 0:
        tiles.append(Tile("Steps missing", f"{left:,}", f"{left / total:.0%} of the run"))
    return tiles


def _duration_tile(run: Run, status: Status, steps_run: int) -> list[Tile]:
    end = status.ended or (time.time() if status.state == "running" else _last_time(run))
    if end is None or end < run.info.created:
        return []
    seconds = end - run.info.created
    pace = f"{duration(seconds / steps_run)} per step" if steps_run else ""
    return [Tile("Duration", duration(seconds), pace)]


def _last_time(run: Run) -> float | None:
    times = [column.times[-1] for column in run.scalars().values() if len(column)]
    return float(max(times)) if times else None


def _loss_tile(losses: Columns) -> list[Tile]:
    for column in losses.values():
        train = column.of("train")
        if len(train):
            return [
                Tile("Last loss", number(float(train.values[-1])), f"at step {train.steps[-1]:,}")
            ]
    return []


def _lost_tile(run: Run) -> list[Tile]:
    lost = lost_records(run.storage)
    return [Tile("Records lost", f"{lost:,}", "queue or disk full")] if lost else []


def _flat(parameters: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return nested parameters with dotted names."""
    entries: list[tuple[str, Any]] = []
    for key, value in parameters.items():
        if isinstance(value, dict) and value:
            entries += _flat(value, f"{prefix}{key}.")
        else:
            entries.append((f"{prefix}{key}", value))
    return entries


def _facts(run: Run) -> list[tuple[str, str]]:
    info = run.info
    started = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(info.created))
    versions = ", ".join(f"{name} {version}" for name, version in info.versions.items())
    facts = {
        "Started": started,
        "Command": shlex.join(info.command),
        **{f"Data, {name}": ", ".join(sources) for name, sources in info.data.items()},
        "Directory": run.path,
        "Framework": info.framework,
        "Versions": versions,
        "Processes": count(info.world_size, "rank") if info.world_size > 1 else "",
        "Code": info.code,
        "Run id": info.id,
        "Captured": _captured(run),
        "Captured less often": info.thinned_note,
    }
    return [(name, fact) for name, fact in facts.items() if fact]


def _captured(run: Run) -> str:
    tensors, scalars = len(run.tensor_names()), len(run.scalar_names())
    return f"{count(tensors, 'tensor')} and {count(scalars, 'scalar')}" if tensors + scalars else ""
