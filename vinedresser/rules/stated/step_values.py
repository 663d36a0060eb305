"""The values of a step or an evaluation by the names that expectations use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from vinedresser.errors import QueryError
from vinedresser.queries.evaluating import Evaluator
from vinedresser.queries.language.syntax import Number
from vinedresser.queries.numpy_numeric import NumpyNumeric
from vinedresser.queries.observables import Moment, Observables
from vinedresser.queries.query import Query
from vinedresser.queries.stored.event import ROOTS
from vinedresser.store.reading.results import short_names
from vinedresser.store.reading.step import Step

__all__ = ["BATCH", "Evaluations", "Side", "StepValues"]

BATCH = {"inputs": "model_inputs", "labels": "labels", "predictions": "predictions"}
"""The collection of which a name of the batch stands for the first tensor."""

# Statistics of which one is captured of a tensor that is not captured in full.
_WORDS = ("mean", "min", "max", "l2", "abs_max")


class StepValues(Observables):
    """What was captured at a train step, or in an evaluation.

    Args:
        step: the step, or the last record of the evaluation.
        scalars: its scalars, or their means over the evaluation, by full name.
    """

    knows_statistics = True

    def __init__(self, step: Step, scalars: Mapping[str, float]) -> None:
        event = "step" if step.mode == "train" else "evaluation"
        super().__init__(
            Moment(event, step.step, step.mode, step.rank, step.time), {}, NumpyNumeric()
        )
        self._step = step
        self.scalars: dict[str, float] = {}
        for name, full in short_names(scalars, step.mode):
            self.scalars.setdefault(name, scalars[full])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """See `Observables.names`."""
        step = self._step
        tensors = dict.fromkeys((*step.measured_names, *step.tensor_names))
        return (*self.scalars, *self._batch, *tensors)

    @cached_property
    def _batch(self) -> dict[str, str]:
        """The names of the batch's tensors that are captured, such as "inputs" of the model."""
        step = self._step
        found: dict[str, str] = {}
        for name, collection in BATCH.items():
            measured = (step.reduction_of(collection, word) for word in _WORDS)
            there = next((one for one in (step.tensors_of(collection), *measured) if one), ())
            if there:
                found[name] = next(iter(there))
        return found

    def surely_tensor(self, name: str) -> bool:
        """See `Observables.surely_tensor`."""
        return name not in self.scalars

    def known(self, name: str, reduction: str) -> float | None:
        """See `Observables.known`."""
        statistics = self._step.reductions.get(self._batch.get(name, name), {})
        if reduction in statistics:
            return statistics[reduction]
        root = statistics.get(ROOTS.get(reduction, ""))
        return None if root is None else root**2

    def read(self, name: str) -> Any:
        """Return the value of a name.

        Raises:
            QueryError: only statistics of it were captured.
            CorruptData: the stored bytes do not match their checksum.
        """
        if name in self.scalars:
            return self.scalars[name]
        name = self._batch.get(name, name)
        if name not in self._step.tensor_names:
            raise QueryError(f"{name}: only statistics of it were captured")
        return self._step.tensor(name)


class Evaluations:
    """Joins the records of each evaluation, whose scalars are averaged."""

    def __init__(self) -> None:
        self._last: Step | None = None
        self._values: dict[str, list[float]] = {}

    def take(self, step: Step) -> Iterator[StepValues]:
        """Yield what is complete with a step: the evaluation before it, and a train step itself."""
        if self._last is not None and (step.mode, step.step) != (self._last.mode, self._last.step):
            yield from self.flush()
        if step.mode == "train":
            yield StepValues(step, step.scalars)
        elif step.mode == "eval":
            self._last = step
            for name, value in step.scalars.items():
                self._values.setdefault(name, []).append(value)

    def flush(self) -> Iterator[StepValues]:
        """Yield the open evaluation, if there is one."""
        if self._last is not None:
            means = {name: float(np.mean(values)) for name, values in self._values.items()}
            values = StepValues(self._last, means)
            self._last, self._values = None, {}
            yield values


class Side:
    """One side of a comparison: a number, or a query that gives one at a step."""

    def __init__(self, query: Query) -> None:
        self.text = query.text
        self._constant = query.expression.value if isinstance(query.expression, Number) else None
        self.names = sorted(query.needs)
        self._evaluator = Evaluator(query)

    def value(self, values: StepValues) -> float | None:
        """Return its value; None if the step does not have what it names.

        Raises:
            QueryError: it is not one number, or cannot be computed from what was captured.
            CorruptData: a stored tensor is damaged.
        """
        if self._constant is not None:
            return self._constant
        if not self._evaluator.offered(values):
            return None
        found: list[Any] = []
        pending = self._evaluator.begin(values)
        assert pending is not None, "without a condition"
        arrays = [np.asarray(array, np.float64) for array in pending.arrays]
        self._evaluator.finish(pending, arrays, found.append)
        try:
            return float(np.asarray(found[0]).item())
        except (TypeError, ValueError) as error:
            raise QueryError(
                f"{self.text} is not one number: use norm, mean, max or min"
            ) from error
