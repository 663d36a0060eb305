"""From a checked tree to functions: what runs is Python functions of this package, nothing else.

There are two levels. Above the reducing functions, an expression is about results, numbers in host
memory; below them, about tensors on their device. The reducing functions on the border ask for
their arrays first, all of which are then moved in one transfer (`Program.begin`); what is above is
computed afterwards (`Program.finish`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError, QueryError, did_you_mean
from vinedresser.queries.language import classes, pictures, reducing
from vinedresser.queries.language.context import Context
from vinedresser.queries.language.elementwise import UNARY, combine_results, combine_tensors
from vinedresser.queries.language.statistics import STATISTICS, statistic
from vinedresser.queries.language.syntax import Call, Name, Node, Number
from vinedresser.queries.language.values import Pending, Tensors

__all__ = ["FUNCTIONS", "MOST_SAMPLES", "Program", "compile_expression", "constant"]

# A value at an event, with reductions computed at once.
_Now = Callable[[Context], Any]
# A result, given the results of the reducing functions.
_Later = Callable[[Sequence[Any]], Any]
_Request = Callable[[Context], Pending]
# Maximum number of elements that a result has, or that a fold receives from one event.
MOST_SAMPLES = 65_536


class _Reducing(NamedTuple):
    """A reducing function.

    Attributes:
        request: returns its result, given the event, its tensors and its numbers.
        tensors: number of its leading arguments that are tensors.
        numbers: least and greatest number of further arguments, which are constants.
        usage: how it is called, for messages.
    """

    request: Callable[..., Pending]
    tensors: int
    numbers: tuple[int, int]
    usage: str


_REDUCING: dict[str, _Reducing] = {
    **{
        name: _Reducing(
            lambda context, operand, name=name: statistic(context, name, operand),
            1,
            (0, 0),
            f"{name}(x)",
        )
        for name in STATISTICS
    },
    "quantile": _Reducing(
        lambda context, x, *shares: reducing.quantile(context, x, shares), 1, (1, 20),
        "quantile(x, 0.9)"),
    "histogram": _Reducing(
        lambda context, x, *numbers: reducing.histogram(context, x, numbers), 1, (0, 3),
        "histogram(x, bins) or histogram(x, bins, low, high)"),
    "top": _Reducing(reducing.top, 1, (1, 1), "top(x, number)"),
    "cosine": _Reducing(reducing.cosine, 2, (0, 0), "cosine(x, y)"),
    "accuracy": _Reducing(classes.accuracy, 2, (0, 0), "accuracy(labels, predictions)"),
    "confusion": _Reducing(classes.confusion, 2, (0, 0), "confusion(labels, predictions)"),
    "images": _Reducing(pictures.images, 1, (0, 1), "images(x) or images(x, number)"),
    "examples": _Reducing(
        pictures.examples, 3, (0, 1), "examples(inputs, labels, predictions, number)"),
    "scatter": _Reducing(pictures.scatter, 2, (0, 0), "scatter(x, y)"),
}  # fmt: skip
_ELEMENTWISE: dict[str, tuple[int, str]] = {
    **{name: (1, f"{name}(x)") for name in UNARY},
    "where": (3, "where(condition, x, y)"),
}
_OF_CLASSES: dict[str, tuple[int, str, Callable[..., Tensors]]] = {
    "argmax": (1, "argmax(x)", classes.argmax),
    "correct": (2, "correct(labels, predictions)", classes.correct),
}
FUNCTIONS = (*_REDUCING, *_ELEMENTWISE, *_OF_CLASSES)


class Program:
    """An expression that can be computed at each event.

    Args:
        node: tree of the expression.
        samples: the result may have an element per sample, because a fold reduces it.

    Raises:
        ConfigError: it calls a function that does not exist, or with wrong arguments.
    """

    def __init__(self, node: Node, *, samples: bool = False) -> None:
        self._requests: list[_Request] = []
        self._samples = samples
        self._finish = self._result(node)

    def begin(self, context: Context) -> Pending:
        """Return the result as it waits for arrays from the device.

        Raises:
            QueryError: it cannot be computed at this event, or exceeds its budget.
        """
        asked = [request(context) for request in self._requests]

        def finish(values: Sequence[NDArray[np.float64]]) -> Any:
            found, start = [], 0
            for one in asked:
                end = start + len(one.arrays)
                found.append(one.finish(values[start:end]))
                start = end
            return self._finish(found)

        return Pending(finish, [array for one in asked for array in one.arrays])

    def _result(self, node: Node) -> _Later:
        """Return how a part of the expression follows from the results of reducing functions."""
        if isinstance(node, Number):
            return lambda _: node.value
        if (isinstance(node, Call) and node.is_operator) or _calls(node, _ELEMENTWISE):
            assert isinstance(node, Call)
            _check_elementwise(node)
            parts = [self._result(operand) for operand in node.operands]
            return lambda found: combine_results(node.function, [part(found) for part in parts])
        place = len(self._requests)
        self._requests.append(self._request(node))
        return lambda found: found[place]

    def _request(self, node: Node) -> _Request:
        if _calls(node, _REDUCING):
            assert isinstance(node, Call)
            return _reducing_request(node)
        at_event, told = compile_expression(node), str(node)
        return lambda context: _read_alone(context, told, at_event(context), self._samples)


def _read_alone(context: Context, told: str, value: Any, samples: bool) -> Pending:
    """Return a value that no function reduces: a scalar, or samples if a fold reduces them."""
    if not isinstance(value, Tensors):
        return Pending(lambda _: value)
    arrays = [value.read(name) for name in value.names]
    shapes = [context.numeric.shape(array) for array in arrays]
    sizes = [int(np.prod(shape)) for shape in shapes]
    if len(arrays) > 1 or sizes[0] > 1 or not sizes[0]:
        many = f"{len(arrays)} tensors" if len(arrays) > 1 else f"a tensor of {list(shapes[0])}"
        if not samples:
            raise QueryError(f"{told} is {many}: reduce it, for example mean({told})")
        if sum(sizes) > MOST_SAMPLES:
            raise QueryError(f"{told} is {many} of {sum(sizes):,} elements, and a fold takes at "
                             f"most {MOST_SAMPLES:,}: reduce it first")  # fmt: skip
        return Pending(lambda found: np.concatenate([one.reshape(-1) for one in found]), arrays)
    return Pending(lambda found: float(found[0].reshape(-1)[0]), arrays)


def compile_expression(node: Node) -> _Now:
    """Return a function that computes an expression at an event at once.

    It returns tensors that are computed when they are read, or a result in host memory.

    Raises:
        ConfigError: it calls a function that does not exist, or with wrong arguments.
    """
    if isinstance(node, Number):
        return lambda _: node.value
    if isinstance(node, Name):
        return lambda context: context.tensors(node.text)
    if _calls(node, _REDUCING):
        request = _reducing_request(node)

        def now(context: Context) -> Any:
            pending = request(context)
            values = context.numeric.fetch(pending.arrays) if pending.arrays else []
            return pending.finish(values)

        return now
    if _calls(node, _OF_CLASSES):
        count, usage, function = _OF_CLASSES[node.function]
        _check_count(node, count, usage)
        parts = [compile_expression(operand) for operand in node.operands]
        return lambda context: function(context, *(part(context) for part in parts))
    _check_elementwise(node)
    parts = [compile_expression(operand) for operand in node.operands]
    return lambda context: combine_tensors(
        context, node.function, [part(context) for part in parts]
    )


def _calls(node: Node, functions: dict[str, Any]) -> bool:
    return isinstance(node, Call) and node.function in functions


def _reducing_request(node: Call) -> _Request:
    function = _REDUCING[node.function]
    tensors, numbers = node.operands[: function.tensors], node.operands[function.tensors :]
    least, most = function.numbers
    constants = [constant(number, function.usage) for number in numbers]
    if len(tensors) < function.tensors or not least <= len(constants) <= most:
        raise ConfigError(f"{node}: {function.usage} is expected")
    parts = [compile_expression(operand) for operand in tensors]
    return lambda context: function.request(context, *(part(context) for part in parts), *constants)


def constant(node: Node, usage: str) -> float:
    """Return the value of a number, which may have a sign.

    Args:
        node: the number's tree.
        usage: what is expected instead, for the message.

    Raises:
        ConfigError: it is not a number.
    """
    if isinstance(node, Call) and node.function == "-" and len(node.operands) == 1:
        return -constant(node.operands[0], usage)
    if not isinstance(node, Number):
        raise ConfigError(f"{node} must be a number: {usage} is expected")
    return node.value


def _check_elementwise(node: Call) -> None:
    if node.is_operator:
        return
    if node.function not in _ELEMENTWISE:
        hint = did_you_mean(node.function, FUNCTIONS) or f"; there are {', '.join(FUNCTIONS)}"
        raise ConfigError(f"{node.function}: no such function{hint}")
    _check_count(node, *_ELEMENTWISE[node.function])


def _check_count(node: Call, count: int, usage: str) -> None:
    if len(node.operands) != count:
        raise ConfigError(f"{node}: {usage} is expected")
