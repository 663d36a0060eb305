"""A second function in the place of a tf.function of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.eager.polymorphic_function import autograph_util

from vinedresser.capture.keras_.calls.interception import collecting
from vinedresser.capture.keras_.calls.several import Several
from vinedresser.capture.keras_.steps.asking import Asks, MakeCollector
from vinedresser.capture.keras_.steps.graph_table import GraphTable
from vinedresser.capture.keras_.steps.traced import Traced

__all__ = ["TracedFunction", "converted"]


class TracedFunction(Traced):
    """Does what a tf.function does, and returns tensors besides.

    Args:
        function: the tf.function.
        asks: says of a full name whether the tensor is to be returned.
        make_collectors: of the watched models, each makes what looks on for it.

    Attributes:
        updates: optimizers that were seen to update something while it was traced, and what.
    """

    def __init__(self, function: Any, asks: Asks, make_collectors: Sequence[MakeCollector]) -> None:
        super().__init__(asks)
        self.updates: list[tuple[Any, Any]] = []
        self._plain = converted(function)
        self._make_collectors = make_collectors
        self._function = self.compiled(
            self._call,
            input_signature=function.input_signature,
            jit_compile=function._jit_compile,
            reduce_retracing=function._reduce_retracing,
        )

    def look(self, args: Any, kwargs: Any) -> None:
        """Be traced for arguments like these, and not called.

        Raises:
            ConfigError: it must not be called, since that would change the training.
        """
        self.prepare(self._function, *args, **kwargs)

    def run(self, args: Any, kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Call it; return what the tf.function returns, and the tensors by name.

        Raises:
            ConfigError: it would change the training.
        """
        self.look(args, kwargs)
        return self.unfolded(self._function(*args, **kwargs))

    def _call(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        def body(table: GraphTable) -> Any:
            sight = Several([make(self.note, table.take) for make in self._make_collectors])
            # What autograph leaves alone, it leaves alone with all that is called there.
            converting = ag_ctx.ControlStatusCtx(ag_ctx.Status.UNSPECIFIED)
            with collecting(sight), converting:
                result = self._plain(*args, **kwargs)
            self.updates = sight.updates
            return result

        return self.trace(body)


def converted(function: Any) -> Any:
    """Return what a tf.function traces: its Python function, converted as it asks for."""
    plain = function.python_function
    if not function._autograph:
        return plain
    return autograph_util.py_func_from_autograph(plain, function._experimental_autograph_options)
