"""All runs of a store, for notebooks: by name, as a table, as a frame."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vinedresser.errors import CorruptData, MissingDependency, NotARun, UnknownRun, did_you_mean
from vinedresser.objects import Location, parse_location
from vinedresser.store.reading.notebook_html import paragraph, table
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.reading.store_runs import runs_in, runs_nearby

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RunStore", "open_store"]

# Rows of the table that a notebook shows, the newest ones.
_MOST_ROWS = 50
_SHOWN = ("name", "state", "step", "rule", "seen")


def open_store(location: str | os.PathLike[str] = "runs") -> RunStore:
    """Open a store for reading.

    Args:
        location: directory of the runs, or ``s3://bucket/prefix``.

    Raises:
        NotARun: the directory does not exist.
        StoreError: the object store refused.
    """
    return RunStore(parse_location(location))


class RunStore(Mapping[str, Run]):
    """The runs of a store by name, as they were when it was opened or last refreshed.

    Args:
        location: directory or address of the store.

    Raises:
        NotARun: the directory does not exist.
        StoreError: the object store refused.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self._places: dict[str, Location] = {}
        self.refresh()

    def refresh(self) -> None:
        """Look for new runs.

        Raises:
            NotARun: the directory does not exist.
            StoreError: the object store refused.
        """
        if isinstance(self.location, os.PathLike) and not os.path.isdir(self.location):
            hint = runs_nearby(self.location) or "; a store is a directory of runs"
            raise NotARun(f"{self.location}: no such directory{hint}")
        self._places = {place.name: place for place in runs_in(self.location)}

    def __getitem__(self, name: str) -> Run:
        """Return a run.

        Raises:
            UnknownRun: no run has this name (a KeyError; use `get` for a default).
            CorruptData: its run.json is invalid.
        """
        # Another thread may refresh meanwhile.
        places = self._places
        if name not in places:
            raise UnknownRun(f"{self.location}: no run {name}{did_you_mean(name, places)}")
        return open_run(str(places[name]))

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._places)

    def __repr__(self) -> str:
        return f"RunStore({str(self.location)!r}, {len(self)} runs)"

    def _repr_html_(self) -> str:
        """Return a table of the newest runs, for a notebook."""
        rows = sorted(self._rows(values=False), key=lambda row: row["created"] or 0, reverse=True)
        shown = table(_SHOWN, ([row[name] for name in _SHOWN] for row in rows[:_MOST_ROWS]))
        older = len(rows) - _MOST_ROWS
        more = paragraph(f"and {older} older runs") if older > 0 else ""
        return f"{paragraph(repr(self))}{shown}{more}"

    def _ipython_key_completions_(self) -> list[str]:
        """Return the names of the runs, for completion in IPython."""
        return [*self]

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame with a row per run, in the order of their names.

        Columns: name, state ("finished", "stopped", ...; "unreadable" if run.json is damaged), step
        (the last one), total_steps, created and ended (UTC), framework, rule and seen (of the
        finding that stopped the run, or else of the first warning; "" without one),
        ``parameters.<name>``, and the last value of each loss and metric of training
        (``losses/...``) and of evaluations (``eval.losses/...``).

        Raises:
            MissingDependency: pandas is not installed.
            StoreError: the object store refused.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingDependency(
                "to_pandas needs pandas, which is not installed: pip install pandas"
            ) from error
        frame = pd.DataFrame([*self._rows(values=True)])
        for name in ("created", "ended"):
            if name in frame:
                frame[name] = pd.to_datetime(frame[name], unit="s", utc=True)
        return frame

    def _rows(self, *, values: bool) -> Iterator[dict[str, Any]]:
        for name in self:
            try:
                yield _row(name, self[name], values=values)
            except (CorruptData, NotARun):
                # Damaged, or removed meanwhile.
                yield {**dict.fromkeys(("step", "created", "ended")), "name": name} | {
                    "state": "unreadable",
                    "rule": "",
                    "seen": "",
                }


def _row(name: str, run: Run, *, values: bool) -> dict[str, Any]:
    info, status = run.info, run.status
    told = run.findings().decisive(status.rule)
    row = {
        "name": name,
        "state": status.state,
        "step": status.step,
        "total_steps": info.total_steps,
        "created": info.created,
        "ended": status.ended,
        "framework": info.framework,
        "rule": told.rule if told else status.rule,
        "seen": told.seen if told else "",
    }
    if values:
        row |= {f"parameters.{key}": value for key, value in info.parameters.items()}
        for kind in ("losses", "metrics"):
            for one, column in run.scalars(kind, mode="train").items():
                row[one] = float(column.values[-1])
            for one, column in run.scalars(kind, mode="eval").items():
                row[f"eval.{one}"] = float(column.values[-1])
    return row
