"""The learning rate of a run, as its hyperparameters name it and as the optimizer has it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import Signal

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step
    from vinedresser.store.records import RunRecord

__all__ = ["LearningRate", "LearningRateSignal"]

_NAMES = re.compile(r"(?:(?:base|init|initial|max|peak)_?)?(?:lr0?|learning_?rate|eta0?)")
# Of each parameter group, as `optimizer_state/lr`, `optimizer_state/generator.lr[1]`.
_CAPTURED = r"^optimizer_state/(?:\w+\.)?lr(?:\[\d+\])?$"
# As often as the statistics that rules look at (`Need`).
_EVERY, _EARLY, _LATER = 20, 400, 100
_KEPT = 512


@dataclass(frozen=True)
class LearningRate:
    """A learning rate with a name.

    Attributes:
        name: as the user wrote it.
        value: as a number.
        tunable: it is a hyperparameter of the run, so that a new value can be given by its name.
    """

    name: str
    value: float
    tunable: bool = True

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
        return self.scaled(_cut(rise))

    def larger(self) -> str:
        """Return a greater value in words."""
        return self.scaled(10.0)

    def scaled(self, factor: float) -> str:
        """Return a value that is so many times as large, in words."""
        return f"{self.name} {self._times(factor):g} instead of {self.value:g}"

    def lowered(self, rise: float) -> dict[str, float]:
        """Return the smaller value by the hyperparameter's name, as a `Finding.correction`."""
        return self.corrected(_cut(rise))

    def raised(self) -> dict[str, float]:
        """Return the greater value by the hyperparameter's name, as a `Finding.correction`."""
        return self.corrected(10.0)

    def corrected(self, factor: float) -> dict[str, float]:
        """Return a value that is so many times as large, as a `Finding.correction`.

        {} where it is no hyperparameter: nobody would know what to set.
        """
        return {self.name: self._times(factor)} if self.tunable else {}

    def _times(self, factor: float) -> float:
        """Return it multiplied, in absolute value (a negative one climbs), with two digits."""
        return float(f"{abs(self.value) * factor:.1e}")


class LearningRateSignal(Signal):
    """The learning rate that hyperparameters name, and those that the optimizer steps by.

    Attributes:
        named: the one among the hyperparameters; None where none has such a name.
        captured: by name, such as ``optimizer_state/lr[1]``, those of the last look.
        history: (step, greatest of the captured) of each look until now, thinned to 512.
        first: the first of these; NaN before.
        greatest: the greatest of these; NaN before.
    """

    needs = (
        Need("learning_rate", every=_EVERY, regex=_CAPTURED, stop=_EARLY, required=False),
        Need("learning_rate", every=_LATER, regex=_CAPTURED, required=False),
    )

    def __init__(self) -> None:
        self.named: LearningRate | None = None
        self.captured: dict[str, float] = {}
        self.history: list[tuple[int, float]] = []
        self.first = math.nan
        self.greatest = math.nan

    def begin(self, info: RunRecord) -> None:
        """Take note of the hyperparameters."""
        self.named = LearningRate.among(info.parameters)

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.rank != 0 or step.mode != "train":
            return
        found = {
            name: value
            for name, value in step.scalars.items()
            if re.match(_CAPTURED, name) and math.isfinite(value)
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
        """Return the learning rate to change: the hyperparameter, or what the optimizer has."""
        if self.named is not None or not self.history:
            return self.named
        return LearningRate("lr", self.history[-1][1], tunable=False)

    def scaled(self, factor: float) -> str:
        """Return what to try in words, such as "lr 0.1 instead of 1"."""
        rate = self.rate()
        if rate is not None:
            return rate.scaled(factor)
        if factor == 0.1:
            return "a tenth of the learning rate"
        return f"{factor:g} times the learning rate"

    def corrected(self, factor: float) -> dict[str, float]:
        """Return what to try as a `Finding.correction`; {} where no hyperparameter is it."""
        rate = self.rate()
        return {} if rate is None else rate.corrected(factor)


def _cut(rise: float) -> float:
    return 0.01 if rise >= 1e3 else 0.1
