"""The losses of custom loops: targets of gradient tapes, and what losses of Keras compare."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import keras

from vinedresser.capture.keras_.backends.operations import Operations
from vinedresser.capture.keras_.observation.comparisons import Comparison, LossFunction
from vinedresser.capture.keras_.observation.written_losses import (
    Written,
    follows_from,
    written_loss,
)

__all__ = [
    "Differentiation",
    "LoopLosses",
    "LoopUpdate",
    "LossSource",
    "WatchedTogether",
]

# Gradients may be taken of several losses before the first of their updates is made.
_MOST_KEPT = 8
# A loss is a few operations away from the function that computes it.
_MOST_OPERATIONS = 8
_SAME = 1e-6


class LossSource(NamedTuple):
    """Where the loss of a training comes from.

    Attributes:
        loss: the loss object of Keras, or a `LossFunction`.
        negated: whether the training minimizes the negative of its value.
        reduction: "mean" or "sum" over the value of a function; "" if it is a number; None if it
            is multiplied by another number, too, or only a part of the loss.
    """

    loss: Any
    negated: bool
    reduction: str | None = ""

    def applied(self, value: Any) -> Any:
        """Return what the training would minimize, given another value; None if not known."""
        if self.negated or self.reduction is None:
            return None
        reduce = {"mean": keras.ops.mean, "sum": keras.ops.sum}.get(self.reduction)
        return value if reduce is None else reduce(value)


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
            self._variables = _identities(source for source in sources if hasattr(source, "assign"))

    def concerns(self, variables: Iterable[Any]) -> bool:
        """Return whether gradients of some of these variables were taken; call `reduce` before."""
        assert self._variables is not None
        return not self._variables.isdisjoint(_identities(variables))


class LoopUpdate(NamedTuple):
    """What preceded one update of a model.

    Attributes:
        forwards: number of forward passes for training since the previous update.
        called: the only comparison of the only forward pass by a loss object or function; None if
            there was none, or if there were several of either.
        written: what the loss of the only forward pass compares by its operations; None if unknown.
        differentiations: calls of ``GradientTape.gradient``, latest first.
    """

    forwards: int
    called: Comparison | None
    written: Written | None
    differentiations: tuple[Differentiation, ...]

    @property
    def comparison(self) -> Comparison | None:
        """What is compared, if it is known."""
        return self.called or (None if self.written is None else self.written.comparison)

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
        """Return where a loss comes from; None if it is not what a loss object or function returns.

        Args:
            loss: a scalar tensor. How it follows from a value is seen by its operations in a graph,
                else by its number, for which the device is waited for.
        """
        if self.called is not None:
            compared, value, *_ = self.called
            if value is loss:
                return LossSource(compared, negated=False)
            if found := _reduced(loss, value):
                return LossSource(compared, *found)
        if self.written is None:
            return None
        return LossSource(self.written.comparison.loss, self.written.negated, None)


class LoopLosses:
    """Relates the forward passes of one model to the losses that are computed from its outputs.

    Args:
        operations: the operations of the running code; None if they cannot be known: then
            predictions are recognised only if they are an output itself.
        differentiating: for variables without a model, which are never called, returns whether
            gradients of the running code may be taken: then it compares predictions; None for a
            model.
    """

    def __init__(
        self,
        operations: Operations | None = None,
        differentiating: Callable[[], bool] | None = None,
    ) -> None:
        self._operations = operations
        self._differentiating = differentiating
        self._forwards = self._comparisons = 0
        # The only comparison; the tensors of several are not kept.
        self._comparison: Comparison | None = None
        self._differentiations: deque[Differentiation] = deque(maxlen=_MOST_KEPT)
        # What the losses of the tape compare by their operations, None if unknown.
        self._written: list[Written | None] = []
        self._outputs: list[weakref.ref[Any]] = []
        # Whether these outputs are of an evaluation.
        self._evaluated = False

    def called(self, output: Any, *, trained: bool, looks: bool) -> None:
        """Note a forward pass.

        Args:
            output: output of the model, a nesting of tensors.
            trained: whether it may be followed by an update.
            looks: whether to look at the operations by which the loss is computed from it.
        """
        self._evaluated = not trained
        if trained:
            self._forwards += 1
        # The memory of the output must not be kept longer than the loop keeps it.
        self._outputs = [weakref.ref(one) for one in keras.tree.flatten(output) if _is_tensor(one)]
        if self._operations is not None:
            if looks and trained and self._forwards == 1:
                self._operations.begin()
            else:
                self._operations.forget()

    def compared(self, comparison: Comparison) -> bool:
        """Note a comparison; return whether it is one of an evaluation with the model's output."""
        if comparison.predictions is None or not self._predicts(comparison.predictions):
            return False
        if not self._evaluated:
            self._comparisons += 1
            self._comparison = comparison if self._comparisons == 1 else None
        return self._evaluated

    def _predicts(self, predictions: Any) -> bool:
        """Return whether predictions are known to be those of the model or the variables."""
        if self._differentiating is not None:
            return self._differentiating()
        outputs = self._known_outputs()
        if any(predictions is output for output in outputs):
            return True
        if self._operations is None or not _is_tensor(predictions):
            return False
        return follows_from(predictions, outputs, self._operations)

    def _known_outputs(self) -> list[Any]:
        return [one for reference in self._outputs if (one := reference()) is not None]

    def differentiated(self, differentiation: Differentiation) -> None:
        """Note that gradients are taken."""
        differentiation.reduce()
        self._differentiations.appendleft(differentiation)
        if self._operations is None or differentiation.target is None:
            return
        found, called = None, self._comparison
        # What a loss object compares counts, whatever else is in the loss.
        if not self._comparisons or (called and isinstance(called.loss, LossFunction)):
            outputs = self._known_outputs()
            found = written_loss(differentiation.target, outputs, self._operations, called)
        self._written.append(found)
        self._operations.forget()

    def updated(self) -> LoopUpdate:
        """Return what preceded an update that is about to be made, and forget it."""
        alone = self._forwards == (1 if self._differentiating is None else 0)
        # Of several losses, none is minimized by itself.
        written = self._written[0] if alone and len(self._written) == 1 else None
        # Differentiations that are not taken may be those of another optimizer.
        update = LoopUpdate(
            self._forwards,
            self._comparison if alone else None,
            written,
            tuple(self._differentiations),
        )
        self._forwards = self._comparisons = 0
        self._comparison = None
        self._written.clear()
        if self._operations is not None:
            self._operations.forget()
        return update


class WatchedTogether:
    """Number of models that were watched in a session.

    With several models, as in adversarial training, labels and predictions of one of them do not
    tell how the training performs.
    """

    def __init__(self, _: object) -> None:
        self.models = 0


def _reduced(loss: Any, value: Any) -> tuple[bool, str | None] | None:
    """Return how a scalar tensor follows from a tensor; None if it is not known to do.

    Returns:
        Whether it is negated, and its reduction; see `LossSource`.
    """
    rank = getattr(getattr(value, "shape", None), "rank", None)
    if rank is None:
        return None
    if hasattr(loss, "op"):
        return _reduced_in_graph(loss, value)
    number = float(loss)
    for reduction in ("mean", "sum") if rank else ("",):
        one = float(LossSource(None, False, reduction).applied(value))
        # Another order of summation may change the last bits.
        tolerance = _SAME * abs(one) if rank else 0.0
        if one != 0 and abs(abs(number) - abs(one)) <= tolerance:
            return (number < 0) != (one < 0), reduction
    return None


def _reduced_in_graph(loss: Any, value: Any) -> tuple[bool, str | None] | None:
    """Return the same as `_reduced` for tensors of a graph of TensorFlow."""
    negated, scaled, reduction, tensor = False, False, "", loss
    for _ in range(_MOST_OPERATIONS):
        if tensor is value:
            return negated, None if scaled else reduction
        operation = tensor.op
        inputs = list(operation.inputs)
        if operation.type == "Neg":
            negated = not negated
        elif operation.type in ("Mean", "Sum") and not reduction:
            reduction = operation.type.lower()
        elif operation.type in ("Mul", "RealDiv"):
            # The number may be on either side of a product.
            if operation.type == "Mul" and _constant(inputs[0]):
                inputs.reverse()
            factor = _constant(inputs[1])
            if not factor:
                return None
            negated, scaled = negated != (factor < 0), scaled or abs(factor) != 1
        elif operation.type != "Identity":
            return None
        tensor = inputs[0]
    return None


def _constant(tensor: Any) -> float:
    """Return a constant float32 scalar of a graph; 0 for any other tensor."""
    if tensor.op.type != "Const" or tensor.shape.rank != 0:
        return 0.0
    return float(next(iter(tensor.op.get_attr("value").float_val), 0.0))


def _identities(variables: Iterable[Any]) -> set[int]:
    """Return the ids of variables, of Keras or of TensorFlow."""
    return {id(getattr(variable, "_value", variable)) for variable in variables}


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")
