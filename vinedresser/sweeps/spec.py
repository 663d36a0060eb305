"""The record of a sweep, which must match when the sweep is resumed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vinedresser.masking import masked_arguments, masked_text, masked_value
from vinedresser.store.records import Record

# Earlier trials are comparable only if these are unchanged.
_SAME = ("space", "command", "parameters", "objectives", "epochs")


@dataclass(frozen=True)
class SweepRecord(Record):
    """A sweep as its first process created it.

    Attributes:
        name: name of the sweep.
        space: the search space, as from `Space.to_json`.
        command: program and arguments of every trial.
        parameters: parameters of every trial in addition to its configuration.
        objectives: metric, direction, value and mode of each objective.
        epochs: number of metric values that a complete trial reports; None: unknown.
        created: time of creation, in seconds since the epoch.
        tracking_uri: MLflow's tracking URI.
        experiment_id: id of the MLflow experiment.
        run_id: id of the parent MLflow run of the trials; "" until it is created.
        id: id of the sweep, which identifies that MLflow run.
        end: final ``status``, ``tags`` and ``time`` for that MLflow run; {} before the end.
        settled: whether the end has been written to MLflow.
    """

    KEY: ClassVar[str] = "sweep.json"

    name: str
    space: dict[str, Any]
    command: list[str]
    parameters: dict[str, Any]
    objectives: list[dict[str, Any]]
    epochs: int | None
    created: float
    tracking_uri: str
    experiment_id: str
    id: str
    run_id: str = ""
    end: dict[str, Any] = field(default_factory=dict)
    settled: bool = False

    def to_json(self) -> dict[str, Any]:
        """See `Record.to_json`; what looks like a secret is masked."""
        return super().to_json() | {
            "command": masked_arguments(self.command),
            "parameters": masked_value("", self.parameters),
            "tracking_uri": masked_text(self.tracking_uri),
        }

    def differences(self, other: SweepRecord) -> list[str]:
        """Return the differences to another sweep, as lines ``space.lr: was ..., is ...``."""
        lines = []
        ours, theirs = self.to_json(), other.to_json()
        for key in _SAME:
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
