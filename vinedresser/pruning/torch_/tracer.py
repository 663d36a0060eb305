"""Running a model once while labels follow its channels through every operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from vinedresser.errors import PruningError
from vinedresser.pruning.torch_.call import Call, tensors_in
from vinedresser.pruning.torch_.context import Context
from vinedresser.pruning.torch_.module_path import following
from vinedresser.pruning.torch_.rules.table import rule_of
from vinedresser.pruning.torch_.running import (
    RAISED,
    Example,
    named_tensors,
    output_tensors,
    summary,
)

__all__ = ["Choices", "Masked", "trace"]

Masked = Callable[[Context, Call], Any]
"""Runs an operator as if channels were absent, and returns what it returns."""


@dataclass(frozen=True)
class Choices:
    """What the trace itself cannot tell.

    Attributes:
        ways: which way to take at sites, by number of the call.
        heads: numbers of the calls that split attention heads into units.
    """

    ways: Mapping[int, int] = field(default_factory=dict)
    heads: frozenset[int] = frozenset()


class _Tracer(TorchDispatchMode):
    def __init__(self, ctx: Context, masked: Masked | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types for it
        self._ctx = ctx
        self._masked = masked

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        ctx = self._ctx
        ctx.order += 1
        call = Call(func, args, kwargs or {})
        result = call.run() if self._masked is None else self._masked(ctx, call)
        call.outputs = list(tensors_in([result]))
        _follow(ctx, call)
        return result


def _follow(ctx: Context, call: Call) -> None:
    """Give the results of an operator their labels."""
    tensors = call.tensors
    from_input = any(map(ctx.from_input, tensors))
    if any(map(ctx.of, tensors)):
        rule = rule_of(call)
        if rule is None:
            for tensor in tensors:
                ctx.lock_all(tensor, f"the operator {call.operator}, which is not supported,")
        changed = ctx.of(tensors[0]) if call.in_place else ()
        layers = rule(ctx, call) if rule is not None else [[] for _ in call.outputs]
        if call.in_place and ctx.shares_memory(tensors[0]):
            _check_views(ctx, call, {one.dim for one in changed} != {one.dim for one in layers[0]})
    else:
        layers = [[] for _ in call.outputs]
    for tensor, found in zip(call.outputs, layers, strict=True):
        ctx.put(tensor, found, from_input=from_input)


def _check_views(ctx: Context, call: Call, changed: bool) -> None:
    """Lock what is written through a view: the tensor that it shows keeps its own labels."""
    if changed:
        for tensor in call.tensors:
            ctx.lock_all(tensor, f"{call.name}, in place, to a part of a tensor,")


def trace(
    model: torch.nn.Module, example: Example, choices: Choices, masked: Masked | None = None
) -> tuple[Context, list[torch.Tensor]]:
    """Run a model on an example and follow its channels.

    Args:
        model: the model, in evaluation mode; it is not changed.
        example: its arguments.
        choices: what the trace itself cannot tell.
        masked: runs each operator; None: as it is.

    Returns:
        What was found, and the outputs, flattened.

    Raises:
        PruningError: the model does not run on the example.
    """
    ctx = Context(model, named_tensors(model), choices.ways, choices.heads)
    example = example.fresh()
    inputs = example.tensors
    for tensor in inputs:
        ctx.put(tensor, [], from_input=True)
    ctx.batch = inputs[0].shape[0] if inputs and inputs[0].ndim else 1
    with following(ctx.modules, ctx.path):
        with _Tracer(ctx, masked):
            try:
                result = example.run(model)
            except RAISED as error:
                raise PruningError(
                    f"the model does not run on the example: {summary(error)}"
                ) from error
        outputs = output_tensors(result)
    for tensor in outputs:
        for layer in ctx.of(tensor):
            ctx.labels.lock(layer.labels, "is an output of the model")
    ctx.forget_tensors()
    return ctx, outputs
