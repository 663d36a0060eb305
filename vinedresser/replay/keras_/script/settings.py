"""What the process of a script is told about its replay of a Keras model, and what it answers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from vinedresser.replay.results import Bisection, Comparison, Located

__all__ = ["KerasAnswer", "KerasScriptSettings", "Looks"]

Looks = Literal["compare", "locate", "bisect"]


@dataclass(frozen=True)
class KerasScriptSettings:
    """What the process is told.

    Attributes:
        directory: directory of the result.
        parent: id of the process that starts it; its descendants replay nothing.
        snapshot: location of the snapshot.
        eager: whether graphs and functions of the script are run as they are written.
        looks: what is looked for besides the comparison.
    """

    directory: str
    parent: int
    snapshot: str
    eager: bool
    looks: Looks

    def to_text(self) -> str:
        """Return the settings as the value of an environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the settings of a text that `to_text` returned."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class KerasAnswer:
    """What the process answers.

    Attributes:
        losses: value of the loss of each batch.
        comparison: how the step compares with the recorded one.
        nonfinite: number of non-finite entries of each affected gradient, by model and path.
        located: the operation, if it was looked for and found.
        inputs: names of the inputs and variables that are not finite before the step.
        bisection: the samples, if they were looked for and are known.
    """

    losses: list[float]
    comparison: Comparison
    nonfinite: dict[tuple[str, str], int]
    located: Located | None
    inputs: list[str]
    bisection: Bisection | None

    @property
    def broken(self) -> bool:
        """Whether a gradient is not finite."""
        return bool(self.nonfinite)

    def to_json(self) -> dict[str, Any]:
        """Return the answer as plain JSON types."""
        pairs = [[model, path, number] for (model, path), number in self.nonfinite.items()]
        return {**asdict(self), "nonfinite": pairs}

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Self:
        """Return the answer of a table that `to_json` returned.

        Raises:
            KeyError, TypeError, ValueError: it is not such a table.
        """
        return cls(
            [float(one) for one in table["losses"]],
            Comparison.from_json(table["comparison"]),
            {(model, path): number for model, path, number in table["nonfinite"]},
            Located.from_json(table["located"]),
            list(table["inputs"]),
            Bisection.from_json(table["bisection"]),
        )
