"""Running a model once while labels follow its channels through every operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from vinedresser.errors import PruningError
from vinedresser.frameworks.torch_.call import Call, tensors_in
from vinedresser.frameworks.torch_.modes import EachOperator
from vinedresser.frameworks.torch_.module_path import following
from vinedresser.pruning.torch_.context import Context
from vinedresser.pruning.torch_.modes import Pass, is_settled
from vinedresser.pruning.torch_.passes import Passes
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
        passes: in which the model is run, and what they do not reach.
    """

    ways: Mapping[int, int] = field(default_factory=dict)
    heads: frozenset[int] = frozenset()
    passes: Passes = field(default_factory=Passes)


def _following(ctx: Context, masked: Masked | None) -> EachOperator:
    """Return a context in which labels follow each operator."""

    def run(
        operator: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        ctx.order += 1
        call = Call(operator, args, kwargs)
        result = call.run() if masked is None else masked(ctx, call)
        call.outputs = list(tensors_in([result]))
        _follow(ctx, call)
        return result

    return EachOperator(run)


def _follow(ctx: Context, call: Call) -> None:
    """Give the results of an operator their labels."""
    # What is made by `x.new_zeros` has nothing of x.
    tensors = [] if call.name.startswith("new_") else call.tensors
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
    noise = is_settled(call.operator) or (bool(tensors) and all(map(ctx.is_noise, tensors)))
    for tensor, found in zip(call.outputs, layers, strict=True):
        ctx.put(tensor, found, from_input=from_input, noise=noise and not from_input)
    ctx.show(ctx.path[-1], [tensors, call.outputs])


def _check_views(ctx: Context, call: Call, changed: bool) -> None:
    """Lock what is written through a view: the tensor that it shows keeps its own labels."""
    if changed:
        for tensor in call.tensors:
            ctx.lock_all(tensor, f"{call.name}, in place, to a part of a tensor,")


def trace(
    model: torch.nn.Module, example: Example, choices: Choices, masked: Masked | None = None
) -> tuple[Context, list[torch.Tensor]]:
    """Run a model on an example, in each of its passes, and follow its channels.

    Args:
        model: a copy of the model, in evaluation mode; it stays as it is.
        example: its arguments.
        choices: what the trace itself cannot tell.
        masked: runs each operator; None: as it is.

    Returns:
        What was found, and the outputs of all passes, flattened.

    Raises:
        PruningError: the model does not run on the example.
    """
    passes = choices.passes
    ctx = Context(model, named_tensors(model), choices.ways, choices.heads, passes.scopes)
    outputs: list[torch.Tensor] = []
    for run in passes.runs:
        ctx.in_training = run.training
        outputs += _run(ctx, model, example.fresh(), run, masked)
    ctx.lock_made_in_training()
    for name in passes.idle:
        ctx.tie_bias(name)
    for labels in ctx.visible:
        ctx.labels.lock(labels, passes.reason)
    ctx.forget_tensors()
    return ctx, outputs


def _run(
    ctx: Context, model: torch.nn.Module, example: Example, one: Pass, masked: Masked | None
) -> list[torch.Tensor]:
    """Run a model once and follow its channels; return its outputs."""
    inputs = example.tensors
    for tensor in inputs:
        ctx.put(tensor, [], from_input=True)
    ctx.batch = inputs[0].shape[0] if inputs and inputs[0].ndim else 1
    with following(ctx.modules, ctx.path, ctx.show):
        try:
            result = example.run(model, one, _following(ctx, masked))
        except RAISED as error:
            raise PruningError(
                f"the model does not run on the example: {summary(error)}"
            ) from error
        outputs = output_tensors(result)
    for tensor in outputs:
        for layer in ctx.of(tensor):
            ctx.labels.lock(layer.labels, "is an output of the model")
    return outputs
