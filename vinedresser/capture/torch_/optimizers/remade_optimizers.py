"""Optimizers that replace equal ones, so that their state is lost."""

from __future__ import annotations

import weakref
from typing import Any

from torch.optim import Optimizer

from vinedresser.capture.adapters.training_setup import described_optimizer
from vinedresser.frameworks.script_line import script_line
from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop
from vinedresser.frameworks.torch_.optimizers import updated

__all__ = ["MADE", "MadeOptimizers", "RemadeOptimizers"]

# Optimizers in a row that are no longer phases of a training.
_FEWEST = 4


class MadeOptimizers(LoopListener):
    """The optimizers that were made since `start`, and the lines of the script that made them."""

    def __init__(self) -> None:
        self._lines: weakref.WeakKeyDictionary[Optimizer, str] | None = None

    def start(self) -> None:
        """Note each optimizer that is made from now on."""
        if self._lines is None:
            self._lines = weakref.WeakKeyDictionary()
            listen_to_loop(self)

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """See `LoopListener.optimizer_made`."""
        assert self._lines is not None, "set before optimizers are noted"
        if optimizer not in self._lines:
            self._lines[optimizer] = script_line()

    def where(self, optimizer: Optimizer) -> str:
        """Return the line that made an optimizer, such as "train.py:12"; "" if unknown."""
        return "" if self._lines is None else self._lines.get(optimizer, "")

    def parameters(self) -> set[int]:
        """Return the ids of the parameters that any of them has."""
        return updated(self._lines or ())


MADE = MadeOptimizers()
"""The noted optimizers of this process."""


class RemadeOptimizers:
    """Counts the optimizers of a model that replace each other with the same settings.

    Whoever changes the weights between the last step of one and the first of the next begins
    another training, such as a fold of a cross-validation or a round of a federation.
    """

    def __init__(self) -> None:
        self._made = 0
        # Ids of the parameters, class and settings of the latest one.
        self._latest: tuple[set[int], dict[str, Any]] = (set(), {})
        # Versions of its first and last parameter after its latest step.
        self._versions: tuple[int, ...] = ()

    def began(self, optimizer: Optimizer) -> dict[str, Any] | None:
        """Return the breach if an optimizer that takes its first step replaces an equal one.

        It is told once, at the fourth.
        """
        kind = type(optimizer).__name__
        settings = described_optimizer(kind, optimizer.defaults, ())["settings"]
        latest = updated([optimizer]), {"type": kind, **settings}
        same = latest == self._latest and self._versions == _versions(optimizer)
        self._made = self._made + 1 if same else 1
        self._latest = latest
        stateless = kind == "SGD" and not settings.get("momentum")
        if stateless or self._made != _FEWEST:
            return None
        where = MADE.where(optimizer)
        return {"made": self._made, "type": kind, "where": where}

    def stepped(self, optimizer: Optimizer) -> None:
        """Note the end of a step of an optimizer of the model."""
        self._versions = _versions(optimizer)


def _versions(optimizer: Optimizer) -> tuple[int, ...]:
    """Return how often the first and the last parameter were changed in place."""
    ends = optimizer.param_groups[0]["params"][:1] + optimizer.param_groups[-1]["params"][-1:]
    return tuple([end._version for end in ends])
