"""The losses of custom loops: targets of gradient tapes, and what losses of Keras compare."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import keras

__all__ = [
    "Comparison",
    "Differentiation",
    "LoopLosses",
    "LoopUpdate",
    "LossSource",
    "WatchedTogether",
]

# Gradients may be taken of several losses before the first of their updates is made.
_MOST_KEPT = 8


class Comparison(NamedTuple):
    """One call of a loss object of Keras.

    Attributes:
        loss: the object.
        value: its value.
        labels: what it compares the predictions with.
        predictions: a tensor, or a nesting of tensors.
    """

    loss: Any
    value: Any
    labels: Any
    predictions: Any


class LossSource(NamedTuple):
    """Where the loss of a training comes from.

    Attributes:
        loss: the loss object of Keras.
        negated: whether the training minimizes the negative of its value.
    """

    loss: Any
    negated: bool


class Differentiation:
    """One call of ``GradientTape.gradient``; all watched models receive the same object.

    Args:
        target: the differentiated tensor, or a nesting of tensors.
        sources: the variables or tensors of the gradients, nested.

    Attributes:
        target: see above; after `reduce`, None if it is not a single number.
        taken: whether an update has followed.
    """

    def __init__(self, target: Any, sources: Any) -> None:
        self.target = target
        self.taken = False
        self._sources = sources
        self._variables: set[int] | None = None

    def reduce(self) -> None:
        """Release everything but a scalar target and the identities of the variables.

        Of a target with several elements, TensorFlow differentiates the sum.
        """
        if self._variables is None:
            rank = getattr(getattr(self.target, "shape", None), "rank", None)
            self.target = self.target if rank == 0 else None
            sources, self._sources = keras.tree.flatten(self._sources), None
            self._variables = _identities(one for one in sources if hasattr(one, "assign"))

    def concerns(self, variables: Iterable[Any]) -> bool:
        """Return whether gradients of some of these variables were taken; call `reduce` before."""
        assert self._variables is not None
        return not self._variables.isdisjoint(_identities(variables))


class LoopUpdate(NamedTuple):
    """What preceded one update of a model.

    Attributes:
        forwards: number of forward passes for training since the previous update.
        comparison: the only comparison of the only forward pass; None if there was none, or if
            there were several of either.
        differentiations: calls of ``GradientTape.gradient``, latest first.
    """

    forwards: int
    comparison: Comparison | None
    differentiations: tuple[Differentiation, ...]

    def take_loss(self, optimizer: Any, variables: Any) -> Any:
        """Return the loss that an optimizer minimizes, a scalar tensor; None if it is uncertain.

        The loss of several models that are updated together is returned for the first. If gradients
        are accumulated, it is that of the last forward pass. More gradients than forward passes are
        of several losses, of which none is minimized by itself.

        Args:
            optimizer: the optimizer whose ``apply`` is called.
            variables: variables passed to ``apply``; None for all that it was built with.
        """
        given = list(optimizer._trainable_variables if variables is None else variables)
        taken = [one for one in self.differentiations if not one.taken and one.concerns(given)]
        for one in taken:
            one.taken = True
        scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if scaled or optimizer.loss_scale_factor is not None:
            return None
        return taken[0].target if 0 < len(taken) <= max(self.forwards, 1) else None

    def source(self, loss: Any) -> LossSource | None:
        """Return where a loss comes from; None if it is not the value of a loss object of Keras.

        Args:
            loss: a scalar tensor. That it is the negative of a value is seen by its operation in a
                graph, else by its number, for which the device is waited for.
        """
        if self.comparison is None:
            return None
        value = self.comparison.value
        if value is loss:
            return LossSource(self.comparison.loss, negated=False)
        negated = _is_negative(loss, value)
        return LossSource(self.comparison.loss, negated=True) if negated else None


class LoopLosses:
    """Relates the forward passes of one model to the losses that are computed from its output.

    Only the output itself is recognised, not what the loop computes from it.
    """

    def __init__(self) -> None:
        self._forwards = self._comparisons = 0
        # The only comparison; the tensors of several are not kept.
        self._comparison: Comparison | None = None
        self._differentiations: deque[Differentiation] = deque(maxlen=_MOST_KEPT)
        self._output: Callable[[], Any] = _nothing
        # Whether that output is of an evaluation.
        self._evaluated = False

    def called(self, output: Any, *, trained: bool) -> None:
        """Note a forward pass.

        Args:
            output: output of the model.
            trained: whether it may be followed by an update.
        """
        self._evaluated = not trained
        if trained:
            self._forwards += 1
        try:
            # The memory of the output must not be kept longer than the loop keeps it.
            self._output = weakref.ref(output)
        except TypeError:
            # A nesting of tensors.
            self._output = _nothing

    def compared(self, comparison: Comparison) -> bool:
        """Note a comparison; return whether it is one of an evaluation with the model's output."""
        if comparison.predictions is None or comparison.predictions is not self._output():
            return False
        if not self._evaluated:
            self._comparisons += 1
            self._comparison = comparison if self._comparisons == 1 else None
        return self._evaluated

    def differentiated(self, differentiation: Differentiation) -> None:
        """Note that gradients are taken."""
        differentiation.reduce()
        self._differentiations.appendleft(differentiation)

    def updated(self) -> LoopUpdate:
        """Return what preceded an update that is about to be made, and forget it."""
        comparison = self._comparison if self._forwards == 1 else None
        # Differentiations that are not taken may be those of another optimizer.
        update = LoopUpdate(self._forwards, comparison, tuple(self._differentiations))
        self._forwards = self._comparisons = 0
        self._comparison = None
        return update


class WatchedTogether:
    """Number of models that were watched in a session.

    With several models, as in adversarial training, labels and predictions of one of them do not
    tell how the training performs.
    """

    def __init__(self, _: object) -> None:
        self.models = 0


def _is_negative(loss: Any, value: Any) -> bool:
    """Return whether a scalar tensor is the negative of another one."""
    if getattr(getattr(value, "shape", None), "rank", None) != 0:
        return False
    operation = getattr(loss, "op", None)
    if operation is not None:
        return bool(operation.type == "Neg" and operation.inputs[0] is value)
    number = float(value)
    return number != 0 and float(loss) == -number


def _identities(variables: Iterable[Any]) -> set[int]:
    """Return the ids of variables, of Keras or of TensorFlow."""
    return {id(getattr(one, "_value", one)) for one in variables}


def _nothing() -> None:
    return None
