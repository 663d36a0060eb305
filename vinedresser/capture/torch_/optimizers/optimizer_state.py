"""What an optimizer keeps, and by which numbers it steps, under names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from vinedresser.capture.torch_.names import NamedParameter
from vinedresser.capture.torch_.nesting import leaves

__all__ = ["hyperparameters", "kept_of", "scheduler_steps", "slots"]

_Kept = tuple[NamedParameter, dict[str, Any]]

_KIND = "optimizer_state"
# Of numbers that come as a tuple: what one of them is called.
_ONE_OF = {"betas": "beta", "etas": "eta", "step_sizes": "step_size"}


def hyperparameters(
    optimizer: Optimizer, prefix: str, first: int, ours: Iterable[Tensor]
) -> Iterator[tuple[str, float | Tensor]]:
    """Yield the numbers of an optimizer's parameter groups, as a scheduler has set them.

    ``optimizer_state/lr``, ``optimizer_state/beta1``; of further groups ``optimizer_state/lr[1]``.

    Args:
        optimizer: any.
        prefix: comes before a number's name.
        first: how many groups were counted before.
        ours: parameters; groups that have none of them are counted only. Where there are none, the
            optimizer steps on copies of them, by the numbers of all groups.
    """
    ids = set(map(id, ours))
    for place, group in enumerate(optimizer.param_groups, first):
        if ids and ids.isdisjoint(map(id, group["params"])):
            continue
        whose = _whose(place)
        for key, value in group.items():
            if key != "params":
                for name, number in _numbers(key, value):
                    yield f"{_KIND}/{prefix}{name}{whose}", number


def scheduler_steps(prefix: str, first: int) -> str:
    """Return the name under which it is told how often an optimizer's schedulers were stepped.

    Args:
        prefix: comes before the name.
        first: how many parameter groups were counted before the optimizer's.
    """
    return f"{_KIND}/{prefix}scheduler_steps{_whose(first)}"


def kept_of(optimizer: Optimizer, parameters: Iterable[NamedParameter]) -> list[_Kept]:
    """Return what an optimizer keeps of each of some parameters, of which it keeps anything.

    Args:
        optimizer: any; before its first step it keeps nothing.
        parameters: those of which it is wanted.
    """
    found = ((one, optimizer.state.get(one.value)) for one in parameters)
    return [(one, kept) for one, kept in found if isinstance(kept, dict)]


def slots(kept: Iterable[_Kept]) -> Iterator[tuple[str, float | Tensor, bool]]:
    """Yield what an optimizer keeps of parameters: ``optimizer_state/conv1.weight.exp_avg``.

    Args:
        kept: parameters, and what is kept of each; see `kept_of`.

    Yields:
        Name, value, and whether that is a tensor of the parameter's shape, or a nesting's.
    """
    for parameter, of_it in kept:
        for slot, value in of_it.items():
            name = f"{_KIND}/{parameter.path}.{slot}"
            if _is_number(value):
                yield name, float(value), False
                continue
            for full, tensor in leaves(value, name):
                yield full, tensor, bool(tensor.dim()) or tensor.shape == parameter.value.shape


def _whose(place: int) -> str:
    return f"[{place}]" if place else ""


def _numbers(key: str, value: Any) -> Iterator[tuple[str, float | Tensor]]:
    """Yield the numbers in an entry of a parameter group, with their names."""
    if isinstance(value, (tuple, list)):
        for place, one in enumerate(value, 1):
            yield from _numbers(f"{_ONE_OF.get(key, key)}{place}", one)
    elif _is_number(value):
        yield key, float(value)
    elif isinstance(value, Tensor) and value.numel() == 1:
        yield key, value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
