"""Evaluating a query at one event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import CorruptData, QueryError
from vinedresser.queries.language.budget import OF_A_TRAINING, Budget, Limits
from vinedresser.queries.language.compiling import Program, compile_expression
from vinedresser.queries.language.context import MOST_LABELS, Context
from vinedresser.queries.language.values import ByLabel, Pending, Share, Tensors
from vinedresser.queries.naming import matching
from vinedresser.queries.observables import Observables
from vinedresser.queries.query import Query

# What operations raise for tensors that do not allow them, such as a sum of texts.
_FAULTS = (
    TypeError, ValueError, ArithmeticError, LookupError, RuntimeError, AttributeError, MemoryError
)  # fmt: skip


class Evaluator:
    """Evaluates a query within its budget; see `Budget`.

    Args:
        limits: what it may cost at an event.
    """

    def __init__(self, query: Query, limits: Limits = OF_A_TRAINING) -> None:
        self._query = query
        self._limits = limits
        self._budget = Budget(limits)
        self._first = True
        self._program = Program(query.expression, samples=query.reduce is not None)
        self._where = None if query.where is None else compile_expression(query.where)
        self._names: tuple[str, ...] = ()
        self._resolved: dict[str, tuple[str, ...]] | None = None

    def offered(self, observables: Observables) -> bool:
        """Return whether an event offers everything that the query reads."""
        names = observables.names
        if self._resolved is None or names != self._names:
            self._names = names
            self._resolved = {need: matching(need, names) for need in self._query.needs}
        return all(self._resolved.values())

    def begin(self, observables: Observables) -> Pending | None:
        """Return the result as it waits for arrays; None if the condition leaves the event out.

        Args:
            observables: an event that `offered` accepts.

        Raises:
            QueryError: it cannot be evaluated, or costs too much.
            CorruptData: a stored tensor is damaged.
        """
        assert self._resolved is not None
        self._budget = budget = Budget(self._limits, first=self._first)
        context = Context(observables, self._resolved, self._query.by, budget)
        kept: frozenset[str] | None = None
        try:
            if self._where is not None:
                condition = self._where(context)
                if isinstance(condition, float | Share):
                    if not float(condition):
                        return None
                elif isinstance(condition, ByLabel):
                    entries = condition.entries.items()
                    kept = frozenset(label for label, value in entries if float(value))
                else:
                    context.mask = _mask(context, condition)
            pending = self._program.begin(context)
            budget.pause()
        except CorruptData:
            raise
        except _FAULTS as error:
            raise _explained(error) from error
        if kept is None:
            return pending
        return Pending(lambda values: _filtered(pending.finish(values), kept), pending.arrays)

    def finish(
        self,
        pending: Pending,
        values: Sequence[NDArray[np.float64]],
        receive: Callable[[Any], object],
    ) -> None:
        """Compute the result of `begin`, given its arrays as float64, and hand it on.

        Args:
            pending: returned by the last call of `begin`.
            receive: receives the result; its time counts as part of the evaluation.

        Raises:
            QueryError: it cannot be computed from them, has too many labels, or took too long.
        """
        # What other queries and the transfer of the arrays took in between does not count.
        self._budget.resume()
        self._first = False
        try:
            result = pending.finish(values)
        except _FAULTS as error:
            raise _explained(error) from error
        entries = result.entries if isinstance(result, ByLabel) else result
        if isinstance(entries, dict) and len(entries) > MOST_LABELS:
            raise QueryError(f"{len(entries):,} labels, and at most {MOST_LABELS:,} are allowed")
        receive(result)
        self._budget.check()


def _explained(error: BaseException) -> QueryError:
    if isinstance(error, QueryError):
        return error
    return QueryError(f"cannot be computed: {type(error).__name__}: {str(error)[:300]}")


def _mask(context: Context, condition: Any) -> Any:
    """Return a condition on samples as an array [samples]."""
    if not isinstance(condition, Tensors) or len(condition.names) != 1:
        raise QueryError("where: must be one number, one per sample, or one per label")
    mask = condition.read(condition.names[0])
    shape = context.numeric.shape(mask)
    if len(shape) != 1:
        raise QueryError(f"where: the condition has the shape {list(shape)}; one per sample")
    return mask


def _filtered(result: Any, kept: frozenset[str]) -> Any:
    if isinstance(result, ByLabel):
        return ByLabel({label: one for label, one in result.entries.items() if label in kept})
    if isinstance(result, dict):
        return {label: one for label, one in result.items() if label in kept}
    raise QueryError("where: a condition by label needs a result by label")
