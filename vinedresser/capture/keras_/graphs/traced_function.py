"""A second function that replaces a tf.function of the user in captured steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.eager.polymorphic_function import autograph_util

from vinedresser.capture.keras_.graphs.graph_table import GraphTable
from vinedresser.capture.keras_.graphs.traced import MakeCollector, Traced
from vinedresser.capture.keras_.observation.combined_observer import CombinedObserver
from vinedresser.capture.keras_.observation.due_filter import DueFilter
from vinedresser.capture.keras_.observation.interception import observing

__all__ = ["TracedFunction", "converted"]


class TracedFunction(Traced):
    """Computes the same as a tf.function and also returns the due tensors.

    Args:
        function: the tf.function.
        is_due: returns whether the tensor of a full name is to be returned.
        make_collectors: functions that return the observer of each watched model.

    Attributes:
        updates: arguments (optimizer, variables) of the calls of ``apply`` during the trace.
    """

    def __init__(
        self, function: Any, is_due: DueFilter, make_collectors: Sequence[MakeCollector]
    ) -> None:
        super().__init__(is_due)
        self.updates: list[tuple[Any, Any]] = []
        self._plain = converted(function)
        self._make_collectors = make_collectors
        self._function = self.compiled(
            self._call,
            input_signature=function.input_signature,
            jit_compile=function._jit_compile,
            reduce_retracing=function._reduce_retracing,
        )

    def prepare_for(self, args: Any, kwargs: Any) -> None:
        """Trace it for arguments of these shapes and dtypes without calling it.

        Raises:
            ConfigError: Calling it would change the training.
        """
        self.prepare(self._function, *args, **kwargs)

    def run(self, args: Any, kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Call it; return the tf.function's result and the tensors by name.

        Raises:
            ConfigError: Calling it would change the training.
        """
        self.prepare_for(args, kwargs)
        return self.unpacked(self._function(*args, **kwargs))

    def _call(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        def body(table: GraphTable) -> Any:
            step_observer = CombinedObserver(
                [make(self.request, table.add) for make in self._make_collectors]
            )
            # Let autograph convert the functions called here although it skips this one.
            converting = ag_ctx.ControlStatusCtx(ag_ctx.Status.UNSPECIFIED)
            with observing(step_observer), converting:
                result = self._plain(*args, **kwargs)
            self.updates = step_observer.updates
            return result

        return self.trace(body)


def converted(function: Any) -> Any:
    """Return the Python function of a tf.function, converted by autograph if it asks for it."""
    plain = function.python_function
    if not function._autograph:
        return plain
    return autograph_util.py_func_from_autograph(plain, function._experimental_autograph_options)
