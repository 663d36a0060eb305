"""Rule: neither the training loss nor the evaluation loss improves any more."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from vinedresser.errors import ConfigError
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least
from vinedresser.rules.need import Need
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

_CONFIDENCE = 0.7
# Share by which the training loss must have decreased, relative to the mean of its first steps,
# since a single step may have a difficult batch.
_LEARNED = 0.1
_FIRST = 10


class _Best(NamedTuple):
    """Lowest loss so far, its step, and the number of evaluations since then.

    A loss replaces it only if it is lower by a margin.
    """

    loss: float
    step: int
    since: int

    def then(self, loss: float, step: int, delta: float) -> _Best:
        """Return the best after one more loss.

        Args:
            loss: loss to add.
            step: step of the loss.
            delta: required relative decrease.
        """
        if loss < self.loss - delta * abs(self.loss):
            return _Best(loss, step, 0)
        return self._replace(since=self.since + 1)


class Overtraining(OnceRule):
    """Neither the training loss nor the evaluation loss improves any more.

    Fires when, for ``patience`` evaluations, neither the evaluation loss nor the mean training loss
    between evaluations was lower than its best by more than ``delta``, in a training that has
    learned. This is a hint: the remaining steps cost time without benefit.

    Source: Overtraining of the predecessor project (patience 5 and 10, delta 0.1 in the unit of the
    loss).

    Args:
        patience: number of evaluations.
        delta: share of the best loss by which a new loss must be lower.
    """

    severity = "info"
    fault = "overtraining"
    stage = "outcome"
    position = 430
    predecessor = "overtraining"
    modes = ("train", "eval")

    def __init__(self, patience: int = 10, delta: float = 0.01) -> None:
        require_at_least(2, patience=patience)
        if not 0 <= delta < 1:
            raise ConfigError(f"delta = {delta:g}: must lie between 0 and 1")
        self.patience = patience
        self.delta = delta
        self.needs = (
            Need("losses", modes=("train",)),
            Need("losses", modes=("eval",), required=False),
        )
        # Sum and count of the first losses.
        self._start: dict[str, tuple[float, int]] = {}
        self._sum: dict[str, tuple[float, int]] = {}
        # Mean losses between the last evaluations.
        self._recent: dict[str, deque[float]] = {}
        self._best: dict[tuple[str, str], _Best] = {}

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        losses = {k: v for k, v in step.scalars_of("losses").items() if math.isfinite(v)}
        if step.mode == "train":
            for name, value in losses.items():
                first, seen = self._start.get(name, (0.0, 0))
                if seen < _FIRST:
                    self._start[name] = (first + value, seen + 1)
                total, count = self._sum.get(name, (0.0, 0))
                self._sum[name] = (total + value, count + 1)
            return None
        for name, (total, count) in self._sum.items():
            self._note(("train", name), total / count, step.step)
            self._recent.setdefault(name, deque(maxlen=self.patience)).append(total / count)
        self._sum = {}
        for name, value in losses.items():
            self._note(("eval", name), value, step.step)
        return self._finding(step) if losses and self._exhausted() else None

    def _note(self, key: tuple[str, str], value: float, step: int) -> None:
        best = self._best.get(key)
        self._best[key] = best.then(value, step, self.delta) if best else _Best(value, step, 0)

    def _exhausted(self) -> bool:
        """Return whether no loss improves and some training loss has decreased."""
        learned = any(self._learned(name) for mode, name in self._best if mode == "train")
        return learned and all(best.since >= self.patience for best in self._best.values())

    def _learned(self, name: str) -> bool:
        """Return whether a training loss has recently been below its start."""
        total, count = self._start[name]
        recent = self._recent[name]
        start = total / count
        return math.fsum(recent) / len(recent) < start - _LEARNED * abs(start)

    def _finding(self, step: Step) -> Finding:
        evaluated = {name: one for (mode, name), one in self._best.items() if mode == "eval"}
        name, best = next(iter(evaluated.items()))
        last = max(one.step for one in self._best.values())
        return self.found(
            step,
            since=last,
            tensor=name,
            statistic="loss",
            value=best.loss,
            threshold=best.loss * (1 - self.delta),
            confidence=_CONFIDENCE,
            seen=f"{name} on evaluation data was best at step {best.step} with {best.loss:.4g}; "
            f"for {self.patience} evaluations neither it nor the training loss improved by "
            f"{self.delta:.0%}",
            cause="the model has learned all it can with this learning rate",
            remedy=f"stop at step {last}, or lower the learning rate there",
            evidence={"best_step": best.step, "best_loss": best.loss},
        )
