"""The closures of optimizers' steps, and the end of their first evaluation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.forward.forward_modes import ForwardModes
from vinedresser.frameworks.torch_.optimizer_steps import Arguments
from vinedresser.frameworks.torch_.optimizers import with_closure
from vinedresser.frameworks.torch_.passing import passed_on

__all__ = ["ObservedClosure", "first_evaluation", "observed"]

_Begun = Callable[[], object]
_Ended = Callable[[Any], object]


class ObservedClosure:
    """A closure whose first evaluation is noticed.

    An optimizer may evaluate it several times, with other weights each time, in one step.

    Args:
        closure: the closure of the script.
    """

    def __init__(self, closure: Callable[..., Any]) -> None:
        functools.update_wrapper(self, closure)
        self._closure = closure
        self._listeners: list[tuple[_Begun, _Ended]] = []
        self._evaluated = False

    def listen(self, ended: _Ended, begun: _Begun) -> None:
        """Call functions around the first evaluation.

        Args:
            ended: receives the result; must not raise.
            begun: called before it, unless it has begun; must not raise.
        """
        self._listeners.append((begun, ended))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate the closure."""
        if self._evaluated:
            return passed_on(self._closure, args, kwargs)
        self._evaluated = True
        for begun, _ in self._listeners:
            begun()
        result = passed_on(self._closure, args, kwargs)
        for _, ended in self._listeners:
            ended(result)
        return result


def observed(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    ended: _Ended,
    begun: _Begun = lambda: None,
) -> Arguments:
    """Return the arguments of an optimizer's step with an observed closure.

    Args:
        args: positional arguments of a step with a closure; args[0] is the optimizer.
        ended: see `ObservedClosure.listen`.
        begun: see `ObservedClosure.listen`.
    """

    def wrapped(closure: Callable[..., Any]) -> ObservedClosure:
        # Several hooks observe one closure. A model that is found in the first evaluation is told
        # of its end.
        made = closure if isinstance(closure, ObservedClosure) else ObservedClosure(closure)
        made.listen(ended, begun)
        return made

    return with_closure(args, kwargs, wrapped)


def first_evaluation(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    recording: Recording,
    modes: ForwardModes,
    shield: Shield,
) -> Arguments:
    """Return the arguments of a step whose recording notes when its closure is evaluated again.

    Args:
        args: positional arguments of a step with a closure; args[0] is the optimizer.
        recording: recording of the train step.
        shield: guards the notes.
    """

    def ended(_: Any) -> None:
        modes.closure_ended()
        recording.again = True

    guard = shield.guard
    begun = guard("a closure", modes.closure_begins)
    return observed(args, kwargs, guard("the end of a closure", ended), begun)
