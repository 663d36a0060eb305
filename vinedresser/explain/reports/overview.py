"""Head of a report: the run, how it ended, its duration and the steps saved."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from vinedresser.explain.formatting import count, duration, number, plain
from vinedresser.explain.verdicts import Verdict
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.series import Columns
from vinedresser.store.records import MachineRecord, RemedyRecord, RestartRecord, lost_records

__all__ = ["Overview", "Tile", "overview"]


@dataclass(frozen=True)
class Tile:
    """A key number.

    Attributes:
        title: name of the number.
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
        tiles: steps, steps saved, duration, last loss, lost records.
        parameters: hyperparameters as text.
        facts: command, versions and identifiers as text.
        remedy: the stopped run that this run retries, with the change; None for other runs.
        restart: the failed run that this run begins again; None for other runs.
        first_report: report of the first of these runs, as a URL relative to this report, or "".
    """

    name: str
    verdict: Verdict
    tiles: Sequence[Tile]
    parameters: Sequence[tuple[str, str]]
    facts: Sequence[tuple[str, str]]
    remedy: RemedyRecord | None
    restart: RestartRecord | None
    first_report: str


def overview(run: Run, verdict: Verdict, losses: Columns) -> Overview:
    """Return the head of the page."""
    remedy = RemedyRecord.from_json(run.info.remedy) if run.info.remedy else None
    restart = RestartRecord.from_json(run.info.restart) if run.info.restart else None
    replaced = remedy or restart
    first = quote(replaced.first, errors="replace") if replaced else ""
    return Overview(
        name=run.info.name,
        verdict=verdict,
        tiles=[
            *_step_tiles(verdict),
            *_duration_tile(run, verdict),
            *_loss_tile(losses),
            *_lost_tile(run),
        ],
        parameters=[(key, plain(value)) for key, value in _flat(run.info.parameters)],
        facts=_facts(run),
        remedy=remedy,
        restart=restart,
        first_report=f"../{first}/report.html" if replaced else "",
    )


def _step_tiles(verdict: Verdict) -> list[Tile]:
    total, steps = verdict.total, verdict.steps
    if not total:
        return [Tile("Steps run", f"{steps:,}", "total unknown")]
    share = min(steps / total, 1.0)
    tiles = [Tile("Steps run", f"{steps:,}", f"of {total:,}", share)]
    left = total - steps
    if saved := verdict.saved:
        tiles.append(Tile("Steps saved", f"{saved:,}", f"{saved / total:.0%} of the run"))
    elif verdict.status.over and left > 0:
        tiles.append(Tile("Steps missing", f"{left:,}", f"{left / total:.0%} of the run"))
    return tiles


def _duration_tile(run: Run, verdict: Verdict) -> list[Tile]:
    status, steps = verdict.status, verdict.steps
    end = status.ended or (time.time() if status.state == "running" else _last_time(run))
    if end is None or end < run.info.created:
        return []
    seconds = end - run.info.created
    pace = f"{duration(seconds / steps)} per step" if steps else ""
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
        "Code": " ".join(filter(None, (info.code, info.branch, info.repository))),
        "Machine": _machine(run),
        "Run id": info.id,
        "Captured": _captured(run),
        "Captured less often": info.thinned_note,
    }
    return [(name, fact) for name, fact in facts.items() if fact]


def _machine(run: Run) -> str:
    found = read_record_or_none(run.storage, MachineRecord, MachineRecord.KEY, [])
    if found is None:
        return ""
    hardware = [found.processor, count(found.cores, "core"), f"{found.memory / 2**30:.0f} GiB"]
    set_to = [f"{name}={value}" for name, value in found.environment.items()]
    packages = [count(len(found.packages), "package")] if found.packages else []
    return ", ".join(filter(None, (found.host, *hardware, *found.gpus, *set_to, *packages)))


def _captured(run: Run) -> str:
    tensors, scalars = len(run.tensor_names()), len(run.scalar_names())
    return f"{count(tensors, 'tensor')} and {count(scalars, 'scalar')}" if tensors + scalars else ""
