"""The learning rate among a run's hyperparameters, and what to try instead."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

__all__ = ["LearningRate"]

_NAMES = re.compile(r"(?:(?:base|init|initial|max|peak)_?)?(?:lr0?|learning_?rate|eta0?)")


@dataclass(frozen=True)
class LearningRate:
    """A hyperparameter that is the learning rate.

    Attributes:
        name: as the user wrote it.
        value: as a number.
    """

    name: str
    value: float

    @classmethod
    def among(cls, parameters: Mapping[str, Any]) -> Self | None:
        """Return the learning rate among hyperparameters; None when none has such a name.

        Args:
            parameters: as recorded with the run; a name may have dots, such as "optimizer.lr", and
                a value may be text, such as "1e-3".
        """
        for name, value in parameters.items():
            if not _NAMES.fullmatch(name.rpartition(".")[2].replace("-", "_").lower()):
                continue
            try:
                number = float(value)
            except (TypeError, ValueError):
                continue
            if math.isfinite(number):
                return cls(name, number)
        return None

    def smaller(self, rise: float) -> str:
        """Return a smaller value in words, such as "lr 0.1 instead of 1".

        Args:
            rise: by which factor the loss rose; a thousandfold asks for a bigger cut.
        """
        return f"{self.name} {self._cut(rise):g} instead of {self.value:g}"

    def larger(self) -> str:
        """Return a greater value in words."""
        return f"{self.name} {self._divided(0.1):g} instead of {self.value:g}"

    def lowered(self, rise: float) -> dict[str, float]:
        """Return the smaller value by the hyperparameter's name, as a `Finding.correction`."""
        return {self.name: self._cut(rise)}

    def raised(self) -> dict[str, float]:
        """Return the greater value by the hyperparameter's name, as a `Finding.correction`."""
        return {self.name: self._divided(0.1)}

    def _cut(self, rise: float) -> float:
        return self._divided(100 if rise >= 1e3 else 10)

    def _divided(self, by: float) -> float:
        """Return it divided, in absolute value (a negative one climbs), with two digits."""
        return float(f"{abs(self.value) / by:.1e}")
