"""The functions of the user's that a pruning calls, and the unpruned model that they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vinedresser.errors import PruningError
from vinedresser.infra.entry import function_named
from vinedresser.pruning.criteria.criterion import Criterion
from vinedresser.pruning.one_round import CustomCriterion
from vinedresser.pruning.plan import Plan
from vinedresser.pruning.rounds.loading import load_weights
from vinedresser.pruning.rounds.settings import PruneTable
from vinedresser.pruning.saving import is_saved, load_with_plans


class UserFunctions:
    """The functions that a table names, imported.

    Args:
        table: the settings.

    Attributes:
        build: returns the unpruned model, with any weights.
        example: returns an example input.
        train: fine-tunes a model; None if a command does.
        evaluate: returns the figure of a model.
        losses: yields the losses of some batches of a model; None if the criterion needs none.

    Raises:
        ConfigError: one of them does not exist.
    """

    def __init__(self, table: PruneTable) -> None:
        self.build = function_named(table.model)
        self.example = function_named(table.example)
        self.train = function_named(table.train) if isinstance(table.train, str) else None
        self.evaluate = function_named(table.evaluate)
        self.losses = function_named(table.losses) if table.losses is not None else None
        self.criterion: str | Criterion | CustomCriterion = table.criterion
        if "criterion" in table.functions:
            self.criterion = function_named(table.criterion)
        self._weights: str | Callable[[Any], object] | None = table.weights
        if table.weights is not None and "weights" in table.functions:
            self._weights = function_named(table.weights)

    def trained_model(self) -> tuple[Any, list[Plan]]:
        """Return the trained model, and its plans if it was pruned before.

        Raises:
            PruningError: the weights cannot be read, or do not fit.
        """
        if isinstance(self._weights, str) and Path(self._weights).is_dir():
            files = [*Path(self._weights).iterdir()]
            if len(files) > 1 or is_saved(Path(self._weights)):
                return load_with_plans(self._weights, self.build)
            if not files:
                raise PruningError(f"{self._weights}: holds no weights: the folder is empty")
            self._weights = str(files[0])
        model = self.build()
        if callable(self._weights):
            self._weights(model)
        elif self._weights is not None:
            load_weights(model, Path(self._weights))
        return model, []
