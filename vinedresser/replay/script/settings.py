"""What the process of a script is told about its replay, and what it answers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from vinedresser.replay.results import Comparison, Located, Place

__all__ = ["RESULT", "ScriptResult", "ScriptSettings"]

# Name of the file with the result.
RESULT = "replay.json"


@dataclass(frozen=True)
class ScriptSettings:
    """What the process is told.

    Attributes:
        directory: directory of the result.
        parent: id of the process that starts it; its descendants replay nothing.
        snapshot: location of the snapshot.
        samples: number of the batch and row of the samples to run the step with; None: all.
        locate: whether the operation is looked for that makes a gradient non-finite.
        eager: whether what `torch.compile` has compiled is run as it is written.
    """

    directory: str
    parent: int
    snapshot: str
    samples: list[tuple[int, int]] | None = None
    locate: bool = False
    eager: bool = False

    def to_text(self) -> str:
        """Return the settings as the value of an environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the settings of a text that `to_text` returned."""
        given = json.loads(text)
        if given["samples"] is not None:
            given["samples"] = [(batch, row) for batch, row in given["samples"]]
        return cls(**given)


@dataclass(frozen=True)
class ScriptResult:
    """What the process answers.

    Attributes:
        failure: why the step was not run again; "" if it was.
        losses: value of the loss of each batch.
        comparison: how the step compares with the recorded one.
        nonfinite: model, path and number of non-finite entries of each affected gradient.
        inexact: why a part of a batch computes something else than the whole, in words.
        notes: what may make the step differ from the recorded one, in words.
        located: the operation, if it was looked for and found.
        inputs: names of the inputs and parameters that are not finite before the step.
    """

    failure: str = ""
    losses: list[float] = field(default_factory=list)
    comparison: Comparison = field(default_factory=lambda: Comparison(None, 0, [], {}))
    nonfinite: list[tuple[str, str, int]] = field(default_factory=list)
    inexact: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    located: Located | None = None
    inputs: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON types."""
        return asdict(self)

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Self:
        """Return the result of a table that `to_json` returned.

        Raises:
            KeyError, TypeError, ValueError: it is not such a table.
        """
        compared, located = dict(table["comparison"]), table["located"]
        compared["environment"] = {
            name: (then, now) for name, (then, now) in compared["environment"].items()
        }
        if located is not None:
            located = Located(**{**located, "place": Place(**located["place"])})
        return cls(
            **{
                **table,
                "comparison": Comparison(**compared),
                "nonfinite": [(model, path, number) for model, path, number in table["nonfinite"]],
                "located": located,
            }
        )
