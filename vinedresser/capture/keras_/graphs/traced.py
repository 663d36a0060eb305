"""The second functions of a step that also return captured tensors."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.eager.polymorphic_function import autograph_util

from vinedresser.capture.keras_.observation.collector import Collector
from vinedresser.capture.keras_.observation.due_filter import DueFilter, Emit
from vinedresser.capture.keras_.observation.interception import observing
from vinedresser.capture.keras_.observation.observers import CombinedObserver
from vinedresser.errors import ConfigError

__all__ = ["Traced", "TracedFunction", "TracedStep", "converted", "stateful_random"]

# Operations with an internal random state, separate in each function. keras.random and
# tf.random.Generator keep the state in variables, which functions share.
_STATEFUL = frozenset(
    {
        "Multinomial",
        "ParameterizedTruncatedNormal",
        "RandomGamma",
        "RandomPoisson",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "TruncatedNormal",
    }
)
# Separates the names of one tensor; no name contains a line break.
_SEPARATOR = "\n"
# Returns an observer that emits the tensors accepted by the filter.
_MakeCollector = Callable[[DueFilter, Emit], Collector]


def stateful_random(graph: Any) -> list[str]:
    """Return the operations of a traced graph that draw from an internal random state, sorted."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return sorted({node.op for node in nodes} & _STATEFUL)


def _stateful_random_error(graph: Any) -> str:
    """Return why a second function would draw different random numbers; "" if it would not.

    Args:
        graph: graph of the traced function.
    """
    found = stateful_random(graph)
    if not found:
        return ""
    return (
        f"the step draws random numbers by {', '.join(found)}, which keep a separate state in each "
        "compiled function, so a second function would change the training; use keras.random or "
        "tf.random.Generator instead of tf.random.*"
    )


class _GraphTable:
    """Symbolic tensors of the function that is being traced, each with all of its names.

    Attributes:
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


class Traced:
    """A function that is traced under observation and also returns the due tensors.

    Args:
        is_due: returns whether the tensor of a full name is to be returned.

    Attributes:
        available: names of all observed tensors.
        returned: names of the tensors that are returned.
        unreachable: names of the due tensors that a function cannot return.
        seconds: CPU time that tracing it took.
    """

    def __init__(self, is_due: DueFilter) -> None:
        self.available: set[str] = set()
        self.returned: set[str] = set()
        self.unreachable: set[str] = set()
        self.seconds = 0.0
        self._reported = False
        self._is_due = is_due
        self._random_error = ""
        self._ready: set[int] = set()

    def request(self, name: str) -> bool:
        """Register an observed tensor; return whether it is to be returned."""
        self.available.add(name)
        return self._is_due(name)

    def trace(self, body: Callable[[_GraphTable], Any]) -> tuple[Any, dict[str, Any]]:
        """Run a function body; called while TensorFlow traces.

        Args:
            body: receives the table that collects the tensors.

        Returns:
            The body's result and the tensors in the form that `unpacked` reads.
        """
        table = _GraphTable()
        result = body(table)
        self._random_error = _stateful_random_error(tf.compat.v1.get_default_graph())
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
            began = time.thread_time()
            function.get_concrete_function(*args, **kwargs)
            self.seconds += time.thread_time() - began
            self._ready.add(id(function))
        if self._random_error:
            raise ConfigError(self._random_error)

    @staticmethod
    def compiled(body: Callable[..., Any], **options: Any) -> Any:
        """Return a tf.function without autograph.

        Args:
            body: the Python function.
        """
        function = tf.function(body, autograph=False, **options)
        # All functions made by this line count as one for TensorFlow's retracing warning.
        function._omit_frequent_tracing_warning = True
        return function

    @staticmethod
    def unpacked(returned: Any) -> tuple[Any, dict[str, Any]]:
        """Return a traced function's own result and the tensors by each of their names."""
        result, tensors = returned
        return result, {name: one for key, one in tensors.items() for name in key.split(_SEPARATOR)}

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


class TracedStep(Traced):
    """Computes the same as Keras's function of one batch and also returns the due tensors.

    It is traced at its first call, and again only if Keras would retrace its own function. The
    graph has additional outputs but the same computations.

    Args:
        method: the model's method: "train_step", "test_step" or "predict_step".
        is_due: returns whether the tensor of a full name is to be returned.
        make_collector: returns the observer of the trace.
        making: makes the context in which the model's step is looked up.
    """

    def __init__(
        self,
        model: Any,
        method: str,
        is_due: DueFilter,
        make_collector: _MakeCollector,
        making: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__(is_due)
        self._make_collector = make_collector
        self._model = model
        # Structured as in Keras: a function of a batch inside a function of an iterator.
        step = tf.autograph.experimental.do_not_convert(self._step)
        self._compiled = self.compiled(step, reduce_retracing=True, jit_compile=model.jit_compile)
        with making():
            self._model_step = getattr(model, method)
            # As in Keras: missing elements of a batch are passed as None.
            self._on_data = model._autoconvert_optionals(self._compiled)
        self._on_iterator = self.compiled(
            lambda iterator: self._on_data(iterator.get_next()), reduce_retracing=True
        )
        self._on_optional = self.compiled(
            lambda batch: self._on_data(batch.get_value()), reduce_retracing=True
        )

    def run(self, iterator: Any) -> tuple[Any, dict[str, Any]]:
        """Run a step on the next batch of a tf.data iterator, or on an Optional of a batch.

        Returns:
            The result of the model's step and the tensors by name.

        Raises:
            ConfigError: Running it would change the training.
        """
        self.prepare_for(iterator, on_data=False)
        return self.unpacked(self._function_for(iterator)(iterator))

    def run_on(self, data: Any) -> tuple[Any, dict[str, Any]]:
        """Run a step on a batch; see `run`."""
        self.prepare_for(data, on_data=True)
        return self.unpacked(self._on_data(data))

    def prepare_for(self, given: Any, *, on_data: bool) -> None:
        """Trace it for an argument unless that was done before.

        Args:
            given: argument of `run` or `run_on`.
            on_data: whether it is the argument of `run_on`.

        Raises:
            ConfigError: Running it would change the training.
        """
        self.prepare(self._compiled if on_data else self._function_for(given), given)

    def _function_for(self, iterator: Any) -> Any:
        """Return the function for an iterator or an Optional."""
        optional = isinstance(iterator, tf.experimental.Optional)
        return self._on_optional if optional else self._on_iterator

    def _step(self, data: Any) -> tuple[Any, dict[str, Any]]:
        def body(table: _GraphTable) -> Any:
            collector = self._make_collector(self.request, table.add)
            with observing(collector):
                outputs = self._model.distribute_strategy.run(self._model_step, args=(data,))
                collector.on_data(data)
            return outputs

        return self.trace(body)


class TracedFunction(Traced):
    """Computes the same as a tf.function and also returns the due tensors.

    Args:
        is_due: returns whether the tensor of a full name is to be returned.
        make_collectors: functions that return the observer of each watched model.

    Attributes:
        updates: arguments (optimizer, variables) of the calls of ``apply`` during the trace.
    """

    def __init__(
        self, function: Any, is_due: DueFilter, make_collectors: Sequence[_MakeCollector]
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
        def body(table: _GraphTable) -> Any:
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
