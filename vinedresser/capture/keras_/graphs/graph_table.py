"""The table of tensors that a traced function returns besides its own result."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["GraphTable", "names_of"]

# Separates the names of one tensor; no name contains a line break.
_SEPARATOR = "\n"


class GraphTable:
    """Symbolic tensors of the function that is being traced, each with all of its names.

    Attributes:
        names: names of the tensors in the table.
        unreachable: names of tensors inside a loop or branch of the graph, which a function cannot
            return.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.unreachable: set[str] = set()
        self._graph = tf.compat.v1.get_default_graph()
        self._known: dict[int, tuple[Any, list[str]]] = {}

    def add(self, name: str, value: Any) -> None:
        """Add a tensor of any shape and dtype; ignore further tensors of the same name."""
        if name in self.names or name in self.unreachable:
            return
        tensor = value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value)
        if getattr(tensor, "graph", self._graph) is not self._graph:
            self.unreachable.add(name)
            return
        self.names.add(name)
        self._known.setdefault(id(tensor), (tensor, []))[1].append(name)

    def outputs(self) -> dict[str, Any]:
        """Return the tensors by their joined names, to be returned by the function."""
        return {_SEPARATOR.join(names): tensor for tensor, names in self._known.values()}


def names_of(key: str) -> list[str]:
    """Split a key of `GraphTable.outputs` into names."""
    return key.split(_SEPARATOR)
