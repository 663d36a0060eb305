"""Following one forward and its backward, and keeping the terms of all calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import _get_sequence_nr  # type: ignore[attr-defined]  # torch has no type

from vinedresser.capture.config.capture_config import Due
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.copies.torch_copier import Keep
from vinedresser.capture.torch_.forward.loss_terms.call import TermCall
from vinedresser.capture.torch_.forward.loss_terms.edges import (
    Edge,
    consumers,
    edge_of,
    on_gradient,
    on_result,
)
from vinedresser.capture.torch_.forward.loss_terms.layers import channels_are_last
from vinedresser.frameworks.torch_.modes import WithoutModes
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.store.reductions.sampling import strided_rows

_KIND = "loss_terms"


class LossTerms:
    """Decomposes <g, y>, the model's outputs times the gradient of the loss, into terms of calls.

    Srinivas and Fleuret, Full-Gradient Representation for Neural Network Visualization, NeurIPS
    2019, for the gradient of the loss instead of that of an output. Nothing that the training
    computes is replaced: arguments and results are copied for a few examples, and hooks on nodes of
    autograd's graph see the gradients.

    Args:
        keep: shielded `TensorCopier.keep`.
        shield: guards the callbacks.
    """

    def __init__(self, keep: Keep, shield: Shield) -> None:
        self._keep = keep
        self._guard = shield.guard
        self._recording: Recording | None = None
        self._examples: _Examples | None = None
        self._calls: list[TermCall] = []
        self._root: TermCall | None = None
        self._given: list[Tensor] = []
        self._returned: Tensor | None = None
        # Edges of results whose channels are the last axis.
        self._last: set[Edge] = set()
        # The backward whose gradients are taken.
        self._backward: int | None = None

    def begin(self, recording: Recording, batch: int | None) -> None:
        """Prepare for a forward.

        Args:
            recording: receives the terms.
            batch: number of examples; None: unknown.
        """
        self._forget()
        if _KIND not in recording.due.collections() or not batch or not torch.is_grad_enabled():
            return
        self._recording = recording
        most = recording.due.ask(f"{_KIND}/").rows
        self._examples = _chosen_examples(batch, most, _rows_of_labels(recording.due))

    def enter(
        self,
        name: str,
        module: nn.Module | None,
        given: Iterable[tuple[str, Tensor]],
        parent: TermCall | None,
    ) -> TermCall | None:
        """Note the start of a call.

        Args:
            module: the module; None for a function.
            given: its arguments by name.
            parent: the call during which it is made; None if it is that of the model.

        Returns:
            The call; None if it is not followed.
        """
        if self._examples is None or (parent is None and self._root is not None):
            return None
        values = [value for _, value in given]
        if not values or any(isinstance(one, nn.Parameter) for one in values):
            # Such as a parametrization, which reads weights and not activations.
            return None
        call = TermCall(name, module, _get_sequence_nr())
        with torch.no_grad(), WithoutModes():
            self._read(call, values)
        if parent is None:
            self._root = call
            self._given = [one for one in map(self._examples.of, values[:1]) if one is not None]
        else:
            parent.inner.append(call)
        return call

    def leave(self, call: TermCall, output: Any) -> None:
        """Note the result of a call, None if it failed, and have its gradients taken."""
        results = [value for _, value in leaves(output) if value.requires_grad]
        with WithoutModes():
            edges = {edge_of(result): result for result in results if result.is_floating_point()}
        # What a call returns as it got it has no term.
        fresh = {edge: one for edge, one in edges.items() if edge not in call.arguments}
        with torch.no_grad(), WithoutModes():
            self._watch_results(call, fresh)
        self._watch_arguments(call, fresh)
        if call is self._root:
            self._returned = self._table(results)
            self._last.clear()
        call.end()
        self._calls.append(call)

    def finish(self, recording: Recording) -> None:
        """Keep the terms, at the end of the step."""
        if recording is self._recording:
            with torch.no_grad(), WithoutModes():
                self._keep_all(recording)
            self._forget()

    def _forget(self) -> None:
        self._recording = self._examples = self._root = self._returned = self._backward = None
        self._calls, self._given = [], []
        self._last.clear()

    def _read(self, call: TermCall, values: list[Tensor]) -> None:
        """Copy the arguments of a call."""
        assert self._examples is not None
        for value in values:
            if value.requires_grad and value.is_floating_point():
                edge = edge_of(value)
                call.arguments[edge] = self._copied(call, value)
                if channels_are_last(call.module) is None:
                    call.last = call.last or edge in self._last
        if not call.arguments and values:
            call.constant = self._examples.of(values[0])

    def _copied(self, call: TermCall, value: Tensor) -> Tensor | None:
        """Return the examples of a tensor, and note their form."""
        assert self._examples is not None
        copied = self._examples.of(value)
        if copied is None:
            call.unknown = True
        else:
            call.folded = call.folded or copied.dim() > value.dim()
        return copied

    def _table(self, results: list[Tensor]) -> Tensor | None:
        """Return the outputs of the examples, [K, outputs]; None if they have another form."""
        if self._examples is None or len(results) != 1 or results[0].dim() != 2:
            return None
        return self._examples.of(results[0])

    def _watch_results(self, call: TermCall, results: dict[Edge, Tensor]) -> None:
        for place, (edge, value) in enumerate(results.items()):
            copied = self._copied(call, value)
            if call.last:
                self._last.add(edge)
            if copied is not None:
                on_gradient(edge, self._taker(call, place, copied, call.take_result))

    def _watch_arguments(self, call: TermCall, results: dict[Edge, Tensor]) -> None:
        given = {edge: place for place, edge in enumerate(call.arguments)}
        if not given:
            return
        for node, place, edge in consumers(results, given, call.since):
            value = call.arguments[edge]
            if value is not None:
                on_result(node, place, self._taker(call, given[edge], value, call.take_argument))

    def _taker(
        self,
        call: TermCall,
        place: int,
        value: Tensor,
        take: Callable[[int, Tensor, Tensor], None],
    ) -> Callable[[Tensor], object]:
        """Return what takes a gradient for a call."""
        examples = self._examples

        def taken(name: str, gradient: Tensor) -> None:
            del name
            task = torch._C._current_graph_task_id()
            if examples is None or examples is not self._examples:
                return
            if self._backward is None:
                self._backward = task
            if task == self._backward:
                with torch.no_grad(), WithoutModes():
                    rows = examples.of(gradient)
                    if rows is not None:
                        take(place, value, rows)

        guarded = self._guard("the gradient for", taken, names=0)
        return lambda gradient: guarded(call.name, gradient)

    def _keep_all(self, recording: Recording) -> None:
        root, examples = self._root, self._examples
        total = None if root is None else root.total
        if root is None or examples is None or total is None:
            # There was no backward.
            return
        name = f"{_KIND}/{root.name}"
        found = {f"{name}[total]": total, **dict(root.inputs())}
        for call in self._calls:
            found.update(call.terms())
        found = {full: value.to(root.dtype) for full, value in found.items()}
        batch = torch.full_like(examples.numbers, examples.batch)
        found[f"{name}[rows]"] = torch.stack([examples.numbers, batch], 1)
        found.update((f"{name}[example]", one) for one in self._given)
        if self._returned is not None:
            found[f"{name}[outputs]"] = self._returned
        for full, value in found.items():
            self._keep_one(recording, full, value)

    def _keep_one(self, recording: Recording, name: str, value: Tensor) -> None:
        ask = recording.due.ask(name)
        if ask:
            # The examples are chosen already.
            self._keep(recording, name, value, ask._replace(rows=None))


def _rows_of_labels(due: Due) -> int | None:
    """Return how many rows of the labels are kept; None: all, or none."""
    ask = due.ask("labels/")
    return ask.rows if ask.tensor else None


class _Examples(NamedTuple):
    """Some examples of a batch.

    Attributes:
        numbers: their rows in the batch, int64 [K], ascending.
        batch: number of examples in the batch.
    """

    numbers: Tensor
    batch: int

    def of(self, value: Tensor) -> Tensor | None:
        """Return a copy of their part of a tensor, [K, ...], in its dtype.

        Args:
            value: [batch, ...], [steps, batch, ...] with three axes, or [batch * parts, ...] with
                the parts of an example in sequence, which become [K, parts, ...].

        Returns:
            None if it has no axis of examples.
        """
        plain = value.detach()
        if plain.layout is not torch.strided or not plain.dim():
            return None
        length = plain.shape[0]
        if length != self.batch:
            if plain.dim() == 3 and plain.shape[1] == self.batch:
                plain = plain.movedim(1, 0)
            elif length and length % self.batch == 0:
                plain = plain.unflatten(0, (self.batch, -1))
            else:
                return None
        return plain.index_select(0, self.numbers.to(plain.device))


def _chosen_examples(batch: int, most: int | None, among: int | None) -> _Examples:
    """Return evenly strided examples.

    Args:
        batch: number of examples in the batch.
        most: maximum number of examples; None: all.
        among: number of evenly strided examples from which they are taken; None: the batch.
    """
    numbers = torch.arange(batch)
    for limit in (among, most):
        places = None if limit is None else strided_rows(len(numbers), limit)
        if places is not None:
            numbers = numbers[torch.from_numpy(places)]
    return _Examples(numbers, batch)
