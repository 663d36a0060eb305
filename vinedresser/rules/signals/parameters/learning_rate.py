"""The learning rate of a run: its hyperparameter, and the optimizer's values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import Signal
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

__all__ = ["LEARNING_RATE", "LearningRate", "LearningRateSignal", "cut"]

_NAMES = re.compile(r"(?:(?:base|init|initial|max|peak)_?)?(?:lr0?|learning_?rate|eta0?)")
# By parameter group, such as `optimizer_state/lr`, `optimizer_state/generator.lr[1]`.
LEARNING_RATE = r"^optimizer_state/(?:\w+\.)?lr(?:\[\d+\])?$"
_KEPT = 512


@dataclass(frozen=True)
class LearningRate:
    """A learning rate with a name.

    Attributes:
        name: name that the user gave it.
        tunable: it is a hyperparameter of the run, so that a correction can name it.
    """

    name: str
    value: float
    tunable: bool = True

    @classmethod
    def among(cls, parameters: Mapping[str, Any]) -> Self | None:
        """Return the learning rate among hyperparameters; None if none has such a name.

        Values of 0 are skipped: a training whose weights change uses another.

        Args:
            parameters: recorded hyperparameters; names may contain dots, such as "optimizer.lr",
                and values may be strings, such as "1e-3".
        """
        for name, value in parameters.items():
            if not _NAMES.fullmatch(name.rpartition(".")[2].replace("-", "_").lower()):
                continue
            try:
                number = float(value)
            except (TypeError, ValueError):
                continue
            if number and math.isfinite(number):
                return cls(name, number)
        return None

    def scaled(self, factor: float) -> str:
        """Return the value times a factor, as text, such as "lr 0.1 instead of 1"."""
        if not self.value:
            return "a learning rate other than 0"
        return f"{self.name} {self._times(factor):g} instead of {self.value:g}"

    def corrected(self, factor: float) -> dict[str, float]:
        """Return the value times a factor, as a `Finding.correction`.

        It is empty if the learning rate is not a hyperparameter.
        """
        return {self.name: self._times(factor)} if self.tunable else {}

    def _times(self, factor: float) -> float:
        """Return the absolute value times a factor, rounded to two digits."""
        return float(f"{abs(self.value) * factor:.1e}")


class LearningRateSignal(Signal):
    """The learning rate of the hyperparameters, and those in use by the optimizer.

    Attributes:
        named: learning rate among the hyperparameters; None if none has such a name.
        captured: optimizer's rates at the last check by name, such as ``optimizer_state/lr[1]``.
        history: (step, largest captured rate) of the checks so far, thinned to 512.
        first: first rate of the history; NaN before.
        greatest: largest rate of the history; NaN before.
    """

    # Rarer from the same step as statistics.
    needs = (Need("learning_rate", 20, regex=LEARNING_RATE, rarer_from=400, required=False),)

    def __init__(self) -> None:
        self.named: LearningRate | None = None
        self.captured: dict[str, float] = {}
        self.history: list[tuple[int, float]] = []
        self.first = math.nan
        self.greatest = math.nan

    def begin(self, info: RunRecord) -> None:
        """Read the hyperparameters."""
        self.named = LearningRate.among(info.parameters)

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.rank != 0 or step.mode != "train":
            return
        found = {
            name: value
            for name, value in step.scalars.items()
            if re.match(LEARNING_RATE, name) and math.isfinite(value)
        }
        if not found:
            return
        self.captured = found
        now = max(found.values(), key=abs)
        self.history.append((step.step, now))
        if len(self.history) > _KEPT:
            self.history = self.history[::2]
        if math.isnan(self.first):
            self.first = self.greatest = now
        self.greatest = max(self.greatest, now, key=abs)

    def rate(self) -> LearningRate | None:
        """Return the learning rate to change: the hyperparameter, or else the optimizer's.

        Of a schedule, it is the largest one so far.
        """
        if self.named is not None or not self.history:
            return self.named
        return LearningRate("lr", self.greatest, tunable=False)

    def scaled(self, factor: float) -> str:
        """Return a remedy as text, such as "lr 0.1 instead of 1"."""
        rate = self.rate()
        if rate is not None:
            return rate.scaled(factor)
        if factor == 0.1:
            return "a tenth of the learning rate"
        return f"{factor:g} times the learning rate"

    def corrected(self, factor: float) -> dict[str, float]:
        """Return the remedy as a `Finding.correction`; {} without such a hyperparameter."""
        rate = self.rate()
        return {} if rate is None else rate.corrected(factor)


def cut(rise: float) -> float:
    """Return the factor by which to lower a learning rate with which the loss rose by a factor."""
    return 0.01 if rise >= 1e3 else 0.1
