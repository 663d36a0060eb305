"""Base class of the second functions that also return captured tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from vinedresser.capture.keras_.graphs.graph_table import GraphTable, names_of
from vinedresser.capture.keras_.graphs.random_numbers import stateful_random_error
from vinedresser.capture.keras_.observation.collector import Collector
from vinedresser.capture.keras_.observation.due_filter import DueFilter, Emit
from vinedresser.errors import ConfigError

__all__ = ["MakeCollector", "Traced"]

# Returns an observer that emits the tensors accepted by the filter.
MakeCollector = Callable[[DueFilter, Emit], Collector]


class Traced:
    """A function that is traced under observation and also returns the due tensors.

    Args:
        is_due: returns whether the tensor of a full name is to be returned.

    Attributes:
        available: names of all observed tensors.
        returned: names of the tensors that are returned.
        unreachable: names of the due tensors that a function cannot return.
    """

    def __init__(self, is_due: DueFilter) -> None:
        self.available: set[str] = set()
        self.returned: set[str] = set()
        self.unreachable: set[str] = set()
        self._reported = False
        self._is_due = is_due
        self._random_error = ""
        self._ready: set[int] = set()

    def request(self, name: str) -> bool:
        """Register an observed tensor; return whether it is to be returned."""
        self.available.add(name)
        return self._is_due(name)

    def trace(self, body: Callable[[GraphTable], Any]) -> tuple[Any, dict[str, Any]]:
        """Run a function body; called while TensorFlow traces.

        Args:
            body: receives the table that collects the tensors.

        Returns:
            The body's result and the tensors in the form that `unpacked` reads.
        """
        table = GraphTable()
        result = body(table)
        self._random_error = stateful_random_error(tf.compat.v1.get_default_graph())
        self.returned |= table.names
        self.unreachable |= table.unreachable
        return result, table.outputs()

    def prepare(self, function: Any, *args: Any, **kwargs: Any) -> None:
        """Trace a function from `compiled` before its first call.

        The trace is always completed, since variables created in it, such as optimizer state, are
        initialised at its end.

        Raises:
            ConfigError: Calling the function would change the training.
        """
        if id(function) not in self._ready:
            function.get_concrete_function(*args, **kwargs)
            self._ready.add(id(function))
        if self._random_error:
            raise ConfigError(self._random_error)

    @staticmethod
    def compiled(body: Callable[..., Any], **options: Any) -> Any:
        """Return a tf.function without autograph.

        Args:
            body: the Python function.
            options: options of tf.function.
        """
        function = tf.function(body, autograph=False, **options)
        # All functions made by this line count as one for TensorFlow's retracing warning.
        function._omit_frequent_tracing_warning = True
        return function

    @staticmethod
    def unpacked(returned: Any) -> tuple[Any, dict[str, Any]]:
        """Return a traced function's own result and the tensors by each of their names."""
        result, tensors = returned
        return result, {name: one for key, one in tensors.items() for name in names_of(key)}

    def unreachable_warning(self) -> str:
        """Return a warning about unreachable tensors, once; "" if there is none."""
        if not self.unreachable or self._reported:
            return ""
        self._reported = True
        names = sorted(self.unreachable)
        more = ", …" if len(names) > 3 else ""
        return (
            f"not captured: {', '.join(names[:3])}{more}: computed inside a loop or branch of the "
            "graph, which cannot return tensors"
        )
