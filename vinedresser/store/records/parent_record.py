"""The record of what makes runs of its own: a sweep, or a pruning."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from vinedresser.masking import masked_text
from vinedresser.objects import Storage
from vinedresser.store.json_values import check_time
from vinedresser.store.records.keys import EXPERIMENT_KEY
from vinedresser.store.records.record import Record


@dataclass(frozen=True, kw_only=True)
class ParentRecord(Record):
    """What makes runs of its own in a store, as its first process created it.

    Attributes:
        name: its name, which is also the name of its store.
        created: time of creation, in seconds since the epoch.
        tracking_uri: MLflow's tracking URI; "" in a copy, of which MLflow has no run.
        experiment_id: id of the MLflow experiment.
        id: an id, which identifies its MLflow run.
        run_id: id of its MLflow run, the parent of its runs'; "" until it is created.
        ranks: processes that train each of its runs together; None: not known, as of older records.
        end: final ``status``, ``tags``, ``metrics`` and ``time`` for that MLflow run; {} before the
            end.
        settled: whether the end has been written to MLflow.
    """

    # What it is, for messages and tags.
    WORD: ClassVar[str]
    # Files in the folder of its state: a living process holds the lock, and a page reports on it.
    LOCK: ClassVar[str]
    PAGE: ClassVar[str]
    # Files and, with a slash, folders in the folder of its state that belong to a copy.
    FILES: ClassVar[tuple[str, ...]]
    # Its runs are comparable only if these are the same whenever it is resumed.
    SAME: ClassVar[tuple[str, ...]]

    name: str
    created: float
    tracking_uri: str
    experiment_id: str
    id: str
    run_id: str = ""
    ranks: int | None = None
    end: dict[str, Any] = field(default_factory=dict)
    settled: bool = False

    def __post_init__(self) -> None:
        """Refuse times that are none."""
        check_time("created", self.created)
        check_time("end.time", self.end.get("time", self.created))

    def to_json(self) -> dict[str, Any]:
        """See `Record.to_json`; what looks like a secret is masked."""
        return super().to_json() | {"tracking_uri": masked_text(self.tracking_uri)}

    def copied(self) -> Self:
        """Return the record of a copy: MLflow's run stays that of the original."""
        return replace(self, tracking_uri="", experiment_id="", run_id="", settled=True)

    def artifacts(self, storage: Storage) -> dict[str, str]:
        """Return what its MLflow run gets at the end: keys in its folder by artifact name.

        Args:
            storage: the folder of its state.

        Raises:
            StoreError: the folder cannot be read.
        """
        return {key: key for key in (self.PAGE, EXPERIMENT_KEY) if storage.exists(key)}

    def resumed(self, other: Self) -> Self:  # noqa: ARG002 (subclasses use it)
        """Return it as it is resumed with the settings of another record without differences."""
        return self

    def differences(self, other: Self) -> list[str]:
        """Return the differences to another record, as lines ``space.lr: was ..., is ...``."""
        lines = []
        ours, theirs = self.to_json(), other.to_json()
        for key in (*self.SAME, *(["ranks"] if self.ranks is not None else [])):
            before, after = ours[key], theirs[key]
            if isinstance(before, dict):
                names = sorted({*before, *after})
                pairs = [(f"{key}.{name}", before.get(name), after.get(name)) for name in names]
            else:
                pairs = [(key, before, after)]
            lines += [
                f"{name}: was {_shown(one)}, is {_shown(two)}"
                for name, one, two in pairs
                if one != two
            ]
        return lines


def _shown(value: object) -> str:
    return "missing" if value is None else json.dumps(value)
