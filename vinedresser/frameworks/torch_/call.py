"""A call of a torch operator with its arguments by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

import torch

__all__ = ["ATTENTION", "Call", "tensors_in"]

# Operators of fused attention.
ATTENTION = frozenset(
    f"_scaled_dot_product_{kind}"
    for kind in (
        "flash_attention_for_cpu",
        "flash_attention",
        "efficient_attention",
        "cudnn_attention",
        "fused_attention_overrideable",
    )
)


class _Argument(NamedTuple):
    """An argument of an operator: its place, whether it is always given by name, its default."""

    place: int
    kwarg_only: bool
    default: Any


class _Known(NamedTuple):
    """What is known of an operator; asking torch takes longer than running a small one."""

    name: str
    in_place: bool
    pointwise: bool
    arguments: dict[str, _Argument]


@cache
def _known(operator: torch._ops.OpOverload) -> _Known:
    schema = operator._schema
    in_place = schema.is_mutable and schema.name.endswith("_")
    name = schema.name.rpartition("::")[2]
    arguments = {
        one.name: _Argument(place, one.kwarg_only, one.default_value)
        for place, one in enumerate(schema.arguments)
    }
    pointwise = torch.Tag.pointwise in operator.tags
    return _Known(name.removesuffix("_") if in_place else name, in_place, pointwise, arguments)


class Call:
    """One call of an operator.

    Attributes:
        name: name without namespace, overload and the underscore of in-place operators.
        args: its positional arguments.
        kwargs: its keyword arguments.
        outputs: the tensors that it returned.
    """

    def __init__(
        self,
        operator: torch._ops.OpOverload,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        self.operator = operator
        self.args = args
        self.kwargs = dict(kwargs)
        self._known = _known(operator)
        self.name = self._known.name
        self.outputs: list[torch.Tensor] = []

    @property
    def in_place(self) -> bool:
        """Whether it changes its first argument and returns it."""
        return self._known.in_place

    @property
    def pointwise(self) -> bool:
        """Whether it treats each element by itself, after broadcasting."""
        return self._known.pointwise

    def __getitem__(self, name: str) -> Any:
        """Return an argument by its name, or its default."""
        argument = self._known.arguments[name]
        if argument.place < len(self.args) and not argument.kwarg_only:
            return self.args[argument.place]
        return self.kwargs.get(name, argument.default)

    def has(self, name: str) -> bool:
        """Return whether the operator has an argument of this name."""
        return name in self._known.arguments

    def place(self, name: str) -> int:
        """Return the place of an argument."""
        return self._known.arguments[name].place

    @cached_property
    def tensors(self) -> list[torch.Tensor]:
        """Tensors among the arguments, also in lists."""
        return list(tensors_in([*self.args, *self.kwargs.values()]))

    def run(self, *args: Any) -> Any:
        """Run the operator on other first arguments."""
        return self.operator(*args, *self.args[len(args) :], **self.kwargs)


def tensors_in(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors of nested lists and tuples, in order."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)
