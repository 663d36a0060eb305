"""What a traced function returns beside its own result."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["GraphTable", "names_of"]

# Between the names of one tensor: no name has a line break.
_BETWEEN = "\n"


class GraphTable:
    """Symbolic tensors of the function that is being traced, each once, with their names.

    Attributes:
        names: of all that was put in.
        unreachable: of what lies inside of a loop or a branch of the graph, which a function cannot
            return.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.unreachable: set[str] = set()
        self._graph = tf.compat.v1.get_default_graph()
        self._known: dict[int, tuple[Any, list[str]]] = {}

    def take(self, name: str, value: Any) -> None:
        """Put a tensor in; of several of one name the first stays."""
        if name in self.names or name in self.unreachable:
            return
        tensor = value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value)
        if getattr(tensor, "graph", self._graph) is not self._graph:
            self.unreachable.add(name)
            return
        self.names.add(name)
        self._known.setdefault(id(tensor), (tensor, []))[1].append(name)

    def outputs(self) -> dict[str, Any]:
        """Return the tensors by their names, for the function to return."""
        return {_BETWEEN.join(names): tensor for tensor, names in self._known.values()}


def names_of(key: str) -> list[str]:
    """Return the names of a tensor from its key in `GraphTable.outputs`."""
    return key.split(_BETWEEN)
