"""Parameters that a training does not update."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.optim import Optimizer

__all__ = ["trained", "untrained"]


def untrained(model: nn.Module, optimizers: list[Optimizer]) -> list[tuple[str, nn.Parameter]]:
    """Return name and value of the parameters that are frozen or in no optimizer.

    [] if most are, which is usual where a trained model is adapted.
    """
    held = {
        id(one) for each in optimizers for group in each.param_groups for one in group["params"]
    }
    found = [
        (name, one)
        for name, one in model.named_parameters()
        if not one.requires_grad or id(one) not in held
    ]
    number = sum(one.numel() for _, one in found)
    return found if 2 * number <= sum(parameter.numel() for parameter in model.parameters()) else []


@contextmanager
def trained(parameters: list[nn.Parameter], optimizers: list[Optimizer]) -> Iterator[None]:
    """Train parameters by the first optimizer, with the options of its first group."""
    optimizer = optimizers[0]
    held = {
        id(one) for each in optimizers for group in each.param_groups for one in group["params"]
    }
    group = optimizer.param_groups[0]
    frozen = [parameter for parameter in parameters if not parameter.requires_grad]
    # In a group that has them already, they are only frozen.
    missing = [parameter for parameter in parameters if id(parameter) not in held]
    for one in frozen:
        one.requires_grad_(True)
    if missing:
        options = {key: value for key, value in group.items() if key != "params"}
        optimizer.add_param_group({**options, "params": missing})
    try:
        yield
    finally:
        if missing:
            optimizer.param_groups.pop()
            for one in missing:
                optimizer.state.pop(one, None)
        for one in frozen:
            one.requires_grad_(False)
            one.grad = None
