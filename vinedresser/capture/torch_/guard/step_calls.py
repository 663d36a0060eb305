"""The calls of a model and its loss in one train step, kept by reference until its update."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vinedresser.capture.recording.batch_source import BatchSource
from vinedresser.capture.torch_.losses.losses import batch_size
from vinedresser.data.records import Origins
from vinedresser.frameworks.nesting import mapped
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.snapshots.trees import Computed

__all__ = ["Call", "StepCalls", "loss_value", "without_computed"]

# Beyond, the inputs of the step are not kept: a loop may call its model without ever stepping.
_MOST_CALLS = 256
_MOST_BYTES = 1 << 30


@dataclass(eq=False)
class Call:
    """A call of the model, and the losses computed after it.

    Attributes:
        args: positional arguments.
        kwargs: keyword arguments.
        loaded: the batch that a data loader returned before it; None if there was none, or if it
            belongs to an earlier call.
        source: where its rows come from; None if that is not known.
        versions: tensors of these, and the versions of their contents.
        losses: name, value and arguments of each loss.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loaded: Any
    source: BatchSource | None
    versions: list[tuple[Tensor, int]]
    losses: list[tuple[str, Any, tuple[Any, ...]]] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether an input was changed in place after the call."""
        return any(tensor._version != version for tensor, version in self.versions)


class StepCalls:
    """The calls of the current train step.

    Attributes:
        calls: the calls in their order; [] if there were too many.
        too_many: there were more than can be kept.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.too_many = False
        self._bytes = 0

    def add(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], loaded: Any, origins: Origins | None
    ) -> None:
        """Keep a call; see `Call`."""
        if self.too_many:
            return
        if not kwargs and loaded is None and all(type(one) is Tensor for one in args):
            # The most frequent case.
            found = list(args)
        else:
            found = [one for _, one in leaves((args, kwargs, loaded))]
        self._bytes += sum(one.nbytes for one in found if one.layout == torch.strided)
        if len(self.calls) >= _MOST_CALLS or self._bytes > _MOST_BYTES:
            self.clear()
            self.too_many = True
            return
        versions = [(one, one._version) for one in found if not one.is_inference()]
        source = None
        if origins is not None:
            source = BatchSource(origins, batch_size((args, kwargs)) == len(origins))
        self.calls.append(Call(args, dict(kwargs), loaded, source, versions))

    def add_loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """Keep a loss of the latest call; the same value is kept once."""
        if not self.calls or not torch.is_grad_enabled():
            return
        losses = self.calls[-1].losses
        if not any(value is known for _, known, _ in losses):
            losses.append((name, value, arguments))

    def clear(self) -> None:
        """Release the calls: a new step begins."""
        self.calls.clear()
        self.too_many = False
        self._bytes = 0


def without_computed(value: Any) -> Any:
    """Return a nesting in which tensors that the model computed are replaced by their place."""

    def change(one: Any) -> Any:
        if not isinstance(one, Tensor) or one.grad_fn is None:
            return one
        return Computed(f"{str(one.dtype).removeprefix('torch.')} {list(one.shape)}")

    return mapped(value, change)


def loss_value(value: Any) -> Any:
    """Return the tensors of a loss's value, detached from their graph."""
    parts: Iterable[tuple[str, Tensor]] = leaves(value)
    found = [one.detach() for _, one in parts]
    return found[0] if len(found) == 1 else found
