"""The names and values of an optimizer's hyperparameters and state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from vinedresser.frameworks.torch_.names import NamedParameter
from vinedresser.frameworks.torch_.nesting import leaves

__all__ = [
    "hyperparameters",
    "kept_of",
    "scheduler_count",
    "scheduler_steps",
    "slots",
]

_Kept = tuple[NamedParameter, dict[str, Any]]

_KIND = "optimizer_state"
# The singular of hyperparameters that are tuples.
_ONE_OF = {"betas": "beta", "etas": "eta", "step_sizes": "step_size"}


def hyperparameters(
    optimizer: Optimizer, prefix: str, first: int, ours: Iterable[Tensor]
) -> Iterator[tuple[str, float | Tensor]]:
    """Yield full name and value of the numbers in an optimizer's parameter groups.

    The names are ``optimizer_state/lr``, ``optimizer_state/beta1``, or ``optimizer_state/lr[1]``
    for other groups than the first.

    Args:
        first: index of the optimizer's first group.
        ours: parameters of the model; groups without any of them are skipped. If empty, the
            optimizer steps on copies of the parameters, and all groups are used.
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
    """Return the full name of the number of scheduler steps.

    Args:
        first: index of the optimizer's first group.
    """
    return f"{_KIND}/{prefix}scheduler_steps{_whose(first)}"


def scheduler_count(prefix: str, first: int) -> str:
    """Return the full name of the number of schedulers that an optimizer has ever had.

    Args:
        first: index of the optimizer's first group.
    """
    return f"{_KIND}/{prefix}scheduler_count{_whose(first)}"


def kept_of(optimizer: Optimizer, parameters: Iterable[NamedParameter]) -> list[_Kept]:
    """Return the parameters for which an optimizer has state, and that state.

    Args:
        optimizer: the optimizer; most have no state before their first step.
        parameters: parameters to look up.
    """
    found = ((parameter, optimizer.state.get(parameter.value)) for parameter in parameters)
    return [(one, kept) for one, kept in found if isinstance(kept, dict)]


def slots(kept: Iterable[_Kept]) -> Iterator[tuple[str, float | Tensor, bool]]:
    """Yield the entries of an optimizer's state, such as ``optimizer_state/conv1.weight.exp_avg``.

    Args:
        kept: parameters and their state; see `kept_of`.

    Yields:
        Full name, value, and whether to keep the value as a tensor (it has dimensions or the
        parameter's shape) instead of a number.
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
    """Yield name and value of the numbers in an entry of a parameter group."""
    if isinstance(value, (tuple, list)):
        for place, one in enumerate(value, 1):
            yield from _numbers(f"{_ONE_OF.get(key, key)}{place}", one)
    elif _is_number(value):
        yield key, float(value)
    elif isinstance(value, Tensor) and value.numel() == 1:
        yield key, value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
