"""A call of a torch operator with its arguments by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

__all__ = ["Call", "tensors_in"]


class Call:
    """One call of an operator.

    Args:
        operator: the operator.
        args: its positional arguments.
        kwargs: its keyword arguments.

    Attributes:
        name: name without namespace, overload and the underscore of in-place operators.
        operator: the operator.
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
        self.name = operator._schema.name.rpartition("::")[2]
        if self.in_place:
            self.name = self.name.removesuffix("_")
        self.outputs: list[torch.Tensor] = []

    @property
    def in_place(self) -> bool:
        """Whether it changes its first argument and returns it."""
        schema = self.operator._schema
        return schema.is_mutable and schema.name.endswith("_")

    @property
    def pointwise(self) -> bool:
        """Whether it treats each element by itself, after broadcasting."""
        return torch.Tag.pointwise in self.operator.tags

    def __getitem__(self, name: str) -> Any:
        """Return an argument by its name, or its default."""
        for place, argument in enumerate(self.operator._schema.arguments):
            if argument.name == name:
                if place < len(self.args) and not argument.kwarg_only:
                    return self.args[place]
                return self.kwargs.get(name, argument.default_value)
        raise KeyError(name)

    def has(self, name: str) -> bool:
        """Return whether the operator has an argument of this name."""
        return any(one.name == name for one in self.operator._schema.arguments)

    @property
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
