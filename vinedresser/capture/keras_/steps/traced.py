"""What all functions have in common that are traced a second time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from vinedresser.capture.keras_.steps.asking import Asks
from vinedresser.capture.keras_.steps.graph_table import GraphTable, names_of
from vinedresser.capture.keras_.steps.random_numbers import random_complaint
from vinedresser.errors import ConfigError

__all__ = ["Traced"]


class Traced:
    """Something that is traced while a collector looks on, and returns what this has taken.

    Args:
        asks: says of a full name whether the tensor is to be returned.

    Attributes:
        seen: the names of all that could be returned.
        taken: of those that are.
        unreachable: of those that cannot be returned.
        told: the user knows what is unreachable.
    """

    def __init__(self, asks: Asks) -> None:
        self.seen: set[str] = set()
        self.taken: set[str] = set()
        self.unreachable: set[str] = set()
        self.told = False
        self._asks = asks
        self._refused = ""
        self._ready: set[int] = set()

    def note(self, name: str) -> bool:
        """Say whether a tensor is to be returned, and remember its name."""
        self.seen.add(name)
        return self._asks(name)

    def trace(self, body: Callable[[GraphTable], Any]) -> tuple[Any, dict[str, Any]]:
        """Trace something; called while TensorFlow traces.

        Args:
            body: is given what takes the tensors.

        Returns:
            What the body returned, and the tensors; see `unfolded`.
        """
        table = GraphTable()
        result = body(table)
        self._refused = random_complaint(tf.compat.v1.get_default_graph())
        self.taken |= table.names
        self.unreachable |= table.unreachable
        return result, table.outputs()

    def prepare(self, function: Any, *args: Any, **kwargs: Any) -> None:
        """Trace one of `compiled` before its first call.

        Whatever comes of it, the trace is finished: what is made while tracing, such as the state
        of an optimizer, is initialised at the end of that.

        Raises:
            ConfigError: it must not be called, since that would change the training.
        """
        if id(function) not in self._ready:
            function.get_concrete_function(*args, **kwargs)
            self._ready.add(id(function))
        if self._refused:
            raise ConfigError(self._refused)

    @staticmethod
    def compiled(body: Callable[..., Any], **options: Any) -> Any:
        """Return a tf.function of what autograph is to leave as it is.

        Args:
            body: the Python function.
            options: those of tf.function.
        """
        function = tf.function(body, autograph=False, **options)
        # TensorFlow counts what comes from one line as one function that is traced too often.
        function._omit_frequent_tracing_warning = True
        return function

    @staticmethod
    def unfolded(returned: Any) -> tuple[Any, dict[str, Any]]:
        """Return what a traced function has returned, with the tensors by each of their names."""
        result, tensors = returned
        return result, {name: one for key, one in tensors.items() for name in names_of(key)}

    def complaint(self) -> str:
        """Return which tensors are out of reach, to be told to the user once; "" for none."""
        if not self.unreachable or self.told:
            return ""
        self.told = True
        names = sorted(self.unreachable)
        more = ", …" if len(names) > 3 else ""
        return (
            f"not captured: {', '.join(names[:3])}{more}: computed inside of a loop or branch of "
            "the graph, which hands nothing out"
        )
