"""Running a model on its example, and copies of it."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

import vinedresser
from vinedresser.errors import PruningError
from vinedresser.frameworks.torch_.modes import EachOperator
from vinedresser.pruning.prunable import Outputs
from vinedresser.pruning.torch_.modes import Pass, in_pass, precise, settled

__all__ = [
    "RAISED",
    "Example",
    "arrays",
    "copied",
    "in_precision",
    "like",
    "located",
    "named_tensors",
    "output_tensors",
    "outputs_of",
    "redraw",
    "summary",
]

RAISED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What the code of a model raises if its sizes do not fit."""

_NOT_OF_THE_MODEL = (
    str(Path(torch.__file__).parent),
    str(Path(vinedresser.__file__).parent),
)


@dataclass(frozen=True)
class Example:
    """Arguments of a model.

    Attributes:
        args: positional arguments.
        precise: whether everything is computed in float64, whatever the model casts to.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    precise: bool = False

    @classmethod
    def of(cls, value: Any) -> Example:
        """Return the arguments that a value stands for.

        Args:
            value: a tensor, a tuple or list of arguments, or a dict of keyword arguments.

        Raises:
            PruningError: it is something else, or has no tensor.
        """
        if isinstance(value, torch.Tensor):
            example = cls((value,), {})
        elif isinstance(value, tuple | list):
            example = cls(tuple(value), {})
        elif isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            example = cls((), dict(value))
        else:
            raise PruningError(
                f"the example is of type {type(value).__name__}; it must be a tensor, a tuple of "
                "the model's arguments, or a dict of keyword arguments"
            )
        if not example.tensors:
            raise PruningError("the example has no tensor")
        return example

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All tensors, in order."""
        leaves = pytree.tree_leaves((self.args, dict(self.kwargs)))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def fresh(self) -> Example:
        """Return copies of the arguments: a model may change its arguments in place."""
        return self._mapped(lambda one: one.detach().clone(), precise=self.precise)

    def to(self, dtype: torch.dtype) -> Example:
        """Return copies of the arguments, with floats of this type."""
        return self._mapped(
            lambda one: one.detach().to(dtype if one.is_floating_point() else one.dtype),
            precise=dtype == torch.float64,
        )

    def _mapped(self, change: Callable[[torch.Tensor], torch.Tensor], *, precise: bool) -> Example:
        args, kwargs = pytree.tree_map(
            lambda one: change(one) if isinstance(one, torch.Tensor) else one,
            (self.args, dict(self.kwargs)),
        )
        return Example(args, kwargs, precise=precise)

    def run(self, model: torch.nn.Module, one: Pass, *modes: AbstractContextManager[object]) -> Any:
        """Return what a model computes in a pass, without gradients.

        Args:
            model: a copy of the user's model, in evaluation mode; see `in_pass`.
            modes: what sees the operators first, the last of them before the others.
        """
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(in_pass(model, one))
            stack.enter_context(EachOperator(settled))
            if any(tensor.is_cuda for tensor in self.tensors):
                # Else convolutions round to 10 bits, and replays differ in their last bits.
                flags = torch.backends.cudnn.flags(deterministic=True, allow_tf32=False)
                stack.enter_context(flags)
            if self.precise:
                stack.enter_context(EachOperator(precise))
            for mode in modes:
                stack.enter_context(mode)
            return model(*self.args, **self.kwargs)


def named_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by name; tied ones once, by their first name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def copied(model: torch.nn.Module, replaced: Mapping[int, torch.Tensor]) -> torch.nn.Module:
    """Return a deep copy of a model, in evaluation mode.

    Args:
        replaced: tensors to put in the place of others, by the id of the others.

    Raises:
        PruningError: the model holds something that cannot be copied.
    """
    memo: dict[int, Any] = dict(replaced)
    for module in model.modules():
        for value in vars(module).values():
            # Such as the product that weight_norm leaves: torch refuses to copy it.
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    try:
        copy_of = copy.deepcopy(model, memo)
    except RAISED as error:
        raise PruningError(f"the model cannot be copied: {summary(error)}") from error
    return copy_of.eval()


def in_precision(model: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """Return a copy of a model in evaluation mode, with floats of this type."""
    tensors = named_tensors(model).values()
    # Those that have another type would be copied twice.
    cast = {
        id(tensor): like(tensor, tensor.detach().to(dtype))
        for tensor in tensors
        if tensor.is_floating_point() and tensor.dtype != dtype
    }
    return copied(model, cast).to(dtype)


def like(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return values as a parameter, if the tensor that they replace is one."""
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(values, requires_grad=tensor.requires_grad)
    return values


def redraw(model: torch.nn.Module) -> None:
    """Give a model random weights, of a size that keeps activations near 1.

    Buffers, which may be tables, keep their values, but for the statistics of normalisations.
    """
    draw = _Draw()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if not tensor.is_floating_point():
                continue
            if tensor.ndim > 1 and tensor[0].numel() > 1:
                # The variance that keeps activations near 1 (He et al., 2015).
                bound = (6 / tensor[0].numel()) ** 0.5
                draw.fill(tensor, -bound, bound)
            elif name.endswith("bias"):
                draw.fill(tensor, -0.5, 0.5)
            else:
                draw.fill(tensor, 0.5, 1.5)
        for name, statistic in model.named_buffers():
            if name.endswith("running_mean"):
                draw.fill(statistic, -0.5, 0.5)
            elif name.endswith("running_var"):
                draw.fill(statistic, 0.5, 1.5)


# Prime, so that no two channels of a weight get the same numbers.
_DRAWN = 65_537


class _Draw:
    """Uniform random numbers, the same on every device.

    Drawing each element of a large model takes longer than running it, so tensors repeat numbers of
    one table, each from another place on.
    """

    def __init__(self) -> None:
        self._random = torch.Generator().manual_seed(0)
        table = torch.empty(_DRAWN, dtype=torch.float64).uniform_(generator=self._random)
        self._twice = table.repeat(2)

    def fill(self, tensor: torch.Tensor, low: float, high: float) -> None:
        """Fill a tensor with numbers between two bounds."""
        first = int(torch.randint(_DRAWN, (), generator=self._random))
        count = tensor.numel()
        table = self._twice[first : first + min(_DRAWN, count)] * (high - low) + low
        repeated = table.to(tensor.device, tensor.dtype).repeat(-(-count // _DRAWN))
        tensor.copy_(repeated[:count].view(tensor.shape))


def output_tensors(result: Any) -> list[torch.Tensor]:
    """Return the tensors of what a model returned, in order.

    Raises:
        PruningError: there is none, or something that may contain hidden ones.
    """
    leaves = pytree.tree_leaves(result)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    strange = [
        type(leaf).__name__
        for leaf in leaves
        if not isinstance(leaf, torch.Tensor | int | float | str | bool | None)
    ]
    if strange or not tensors:
        raise PruningError(
            f"the model returns {strange[0] if strange else 'no tensor'}; it must return a tensor, "
            "or tuples, lists or dicts of tensors"
        )
    return tensors


def outputs_of(
    model: torch.nn.Module, example: Example, runs: Iterable[Pass]
) -> list[torch.Tensor]:
    """Return the tensors that a model returns in passes, in order; see `Example.run`.

    Raises:
        PruningError: see `output_tensors`.
    """
    return [tensor for run in runs for tensor in output_tensors(example.fresh().run(model, run))]


def arrays(tensors: list[torch.Tensor]) -> Outputs:
    """Return tensors as arrays of the host; bfloat16 as float32, which has all its values."""
    return [
        (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).detach().cpu().numpy()
        for tensor in tensors
    ]


def summary(error: BaseException) -> str:
    """Return an error as one short line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 200 else f"{text[:199]}…"


def located(error: BaseException) -> str:
    """Return an error as one short line, with the line of the model's code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    inner = [frame for frame in frames if not frame.filename.startswith(_NOT_OF_THE_MODEL)]
    place = f", {Path(inner[-1].filename).name}:{inner[-1].lineno}" if inner else ""
    return f"{summary(error)}{place}"
