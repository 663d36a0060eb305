"""What a sweep is: what must be the same when it is gone on with."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vinedresser.store.records import Record

__all__ = ["SweepRecord"]

# What was tried means nothing any more when one of these is another.
_SAME = ("space", "command", "parameters", "objectives", "epochs")


@dataclass(frozen=True)
class SweepRecord(Record):
    """A sweep, as its first process made it.

    Attributes:
        name: of the sweep.
        space: as `Space.to_json` gives it.
        command: program and arguments of every trial.
        parameters: what every trial is given beside its configuration.
        objectives: metric, direction, value and mode of each.
        epochs: values of the metric that a whole trial reports; None: nobody said.
        created: seconds since the epoch.
        tracking_uri: MLflow's.
        experiment_id: MLflow's experiment.
        run_id: MLflow's run that the trials are under; "" between the intention to make it and its
            making.
        id: of the sweep, by which that run is found again.
        end: what that run is to be told at the end: ``status``, ``tags`` and ``time``; {} as long
            as nobody has seen the end.
        settled: it has been told.
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

    def differences(self, other: SweepRecord) -> list[str]:
        """Return what is not the same in another, as lines ``space.lr: was ..., is ...``."""
        lines = []
        for key in _SAME:
            before, after = getattr(self, key), getattr(other, key)
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
    return "not there" if value is None else json.dumps(value)
