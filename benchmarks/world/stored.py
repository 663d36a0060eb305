"""Trained cases in a directory: their runs, and how they ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.world.cases import Case
from corpus.family import Ending
from vinedresser.capture.attach.launching import additional_runs
from vinedresser.store.records import RunRecord

__all__ = ["NOTED", "RUN", "StoredCase", "note_case", "stored_cases"]

RUN = "run"
NOTED = "case.json"
_KEYS = ("family", "fault", "seed", "number", "faulty", "repeat")


@dataclass(frozen=True)
class StoredCase:
    """A trained case.

    Attributes:
        case: the case.
        place: its directory.
        ending: how it ended.
        hooked: whether the script created a hook.
        seconds: duration of the training, including capture.
        sizes: entries of each weight of its models, by name.
    """

    case: Case
    place: Path
    ending: Ending
    hooked: bool
    seconds: float
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def runs(self) -> list[Path]:
        """Directories of its trainings, in order."""
        first = self.place / RUN
        return [first, *additional_runs(first)] if (first / RunRecord.KEY).exists() else []


def note_case(stored: StoredCase) -> None:
    """Write the ending of a case into its directory."""
    table = {
        **{key: getattr(stored.case, key) for key in _KEYS},
        "hooked": stored.hooked,
        "seconds": round(stored.seconds, 2),
        "ending": stored.ending.to_json(),
        "sizes": stored.sizes,
    }
    (stored.place / NOTED).write_text(json.dumps(table, indent=1), encoding="utf-8")


def stored_cases(keep: Path) -> Iterator[StoredCase]:
    """Yield the trained cases of a directory, by name."""
    for path in sorted(keep.glob(f"*/{NOTED}")):
        table = json.loads(path.read_text(encoding="utf-8"))
        yield StoredCase(
            Case(**{key: table[key] for key in _KEYS if key in table}),
            path.parent,
            Ending.from_json(table["ending"]),
            table["hooked"],
            table["seconds"],
            table.get("sizes", {}),
        )
