"""One call of a module or function: products of values and gradients, and the terms from them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from vinedresser.capture.torch_.forward.loss_terms.edges import Edge
from vinedresser.capture.torch_.forward.loss_terms.layers import (
    bias_of,
    channels_are_last,
    input_gradient,
    is_linear,
)

# Largest difference between <bias, g> and <y, g> - <x, g>, relative to the latter two.
_ROUNDING = 1e-3


class TermCall:
    """A call, from its start to the end of the step.

    With arguments x, results y and the gradients g of the loss with respect to them, its term is
    <y, g_y> - <x, g_x>, where g_x is only what this call adds to the gradient of x.

    Shape legend: K examples.

    Args:
        module: the module; None for a function.
        since: sequence number of autograd at its start.

    Attributes:
        arguments: edges of the arguments that require gradients, with their values, [K, ...]; None
            without an axis of examples.
        constant: its first argument, if none requires a gradient, [K, ...].
        inner: calls made during it.
        last: channels are the last axis of its results.
        folded: the examples share an axis with places, such as tokens.
        dropped: it is part of the term of the module that called it.
        unknown: some of its arguments or results have no axis of examples.
    """

    def __init__(self, name: str, module: nn.Module | None, since: int) -> None:
        self.name = name
        self.module = module
        self.since = since
        self.arguments: dict[Edge, Tensor | None] = {}
        self.constant: Tensor | None = None
        self.inner: list[TermCall] = []
        self.last = bool(channels_are_last(module))
        self.folded = False
        self.dropped = False
        self.unknown = False
        self._linear = is_linear(module)
        self._first = False
        self._read: dict[int, Tensor] = {}
        self._written: dict[int, Tensor] = {}
        self._bias: Tensor | None = None
        self._input: Tensor | None = None

    def end(self) -> None:
        """End the call: functions are part of a module that calls no modules."""
        if all(one.module is None for one in self.inner):
            for one in self.inner:
                one.dropped = True
            self.inner.clear()
        self._first = not self.arguments
        # Nodes would keep the graph alive.
        self.arguments = {}

    def take_argument(self, place: int, value: Tensor, gradient: Tensor) -> None:
        """Add what an operation of the call contributes to the gradient of an argument.

        Args:
            place: number of the argument.
            value: the argument, [K, ...].
            gradient: the contribution, in its shape.
        """
        product = _wide(value) * _wide(gradient)
        self._read[place] = self._read[place] + product if place in self._read else product

    def take_result(self, place: int, value: Tensor, gradient: Tensor) -> None:
        """Take the gradient of a result.

        Args:
            place: number of the result.
            value: the result, [K, ...].
            gradient: its gradient, in its shape.
        """
        gradient = _wide(gradient)
        self._written[place] = _wide(value) * gradient
        if self.module is None or not self._linear:
            return
        bias = bias_of(self.module, value.dim())
        self._bias = torch.zeros_like(gradient) if bias is None else gradient * _wide(bias)
        if self._first and self.constant is not None:
            found = input_gradient(self.module, _wide(self.constant), gradient)
            self._input = None if found is None else found * self.constant

    @property
    def total(self) -> Tensor | None:
        """Sum of results times gradients, float64 [K]; None if it is unknown."""
        if self.unknown or not self._written:
            return None
        return sum(map(_sums, self._written.values()), self._zeros())

    @property
    def difference(self) -> Tensor | None:
        """The same less the sum of arguments times gradients."""
        total = self.total
        return None if total is None else total - sum(map(_sums, self._read.values()))

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the products, float32 or float64."""
        return next(iter(self._written.values())).dtype

    def terms(self) -> Iterable[tuple[str, Tensor]]:
        """Yield the full names and values of its terms, [K, places...] or [K].

        A module that calls others has the rest: what is not in their terms.
        """
        difference = self.difference
        if difference is None or self.dropped:
            return
        name = f"loss_terms/{self.name}"
        if self.inner:
            inside = [one.difference for one in self.inner]
            yield f"{name}[rest]", difference - sum(one for one in inside if one is not None)
        elif self._first:
            if self._bias is not None:
                yield name, self._placed(self._bias)
                difference = difference - _sums(self._bias)
            yield f"{name}[input]", self._of_input(difference)
        else:
            yield name, self._own(difference)

    def inputs(self) -> Iterable[tuple[str, Tensor]]:
        """Yield the input terms of a model whose arguments require gradients."""
        for product in self._read.values():
            yield f"loss_terms/{self.name}[input]", _of_features(product, self)

    def _own(self, difference: Tensor) -> Tensor:
        """Return the term of a call that reads what depends on parameters."""
        if self._bias is not None:
            size = _sums(self._bias.abs()) + sum(_sums(one.abs()) for one in self._read.values())
            # A subclass may compute something else.
            same = (_sums(self._bias) - difference).abs() <= _ROUNDING * size
            return self._placed(self._bias) if bool(same.all()) else difference
        if len(self._read) == len(self._written) == 1:
            (read,), (written,) = self._read.values(), self._written.values()
            if read.shape == written.shape:
                return self._placed(written - read)
        return difference

    def _of_input(self, difference: Tensor) -> Tensor:
        """Return the input term of the first call that depends on parameters."""
        if self._input is not None:
            return _of_features(self._input, self)
        if self._bias is None and len(self._written) == 1:
            # Such as an embedding.
            return self._placed(next(iter(self._written.values())))
        return difference

    def _placed(self, product: Tensor) -> Tensor:
        """Return the sum over channels, [K, places...], or [K] without places."""
        if product.dim() < 3:
            return _sums(product)
        if self.last:
            return product.sum(-1, dtype=torch.float64)
        return _sums(product) if self.folded else product.sum(1, dtype=torch.float64)

    def _zeros(self) -> Tensor:
        written = next(iter(self._written.values()))
        return written.new_zeros(len(written), dtype=torch.float64)


def _of_features(product: Tensor, call: TermCall) -> Tensor:
    """Return rows of features as they are, and the sum over channels of others."""
    return product if product.dim() == 2 else call._placed(product)


def _wide(value: Tensor) -> Tensor:
    """Return a tensor in float32, or float64 if it has that dtype."""
    return value.to(torch.promote_types(value.dtype, torch.float32))


def _sums(product: Tensor) -> Tensor:
    """Return the sum for each example, float64 [K]."""
    return product.flatten(1).sum(1, dtype=torch.float64) if product.dim() > 1 else product.double()
