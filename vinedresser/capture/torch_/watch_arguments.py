"""Checking the arguments of `Hook.watch` for a torch model."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Optimizer

from vinedresser.errors import ConfigError

__all__ = ["check_loss", "given_optimizers"]


def check_loss(loss: object) -> None:
    """Check that a loss can be watched.

    Raises:
        ConfigError: the loss is neither None nor an ordinary nn.Module.
    """
    scripted = isinstance(loss, torch.jit.ScriptModule)
    if loss is not None and (scripted or not isinstance(loss, nn.Module)):
        name = getattr(loss, "__name__", "…")
        what = "is TorchScript" if scripted else "is not a torch.nn.Module"
        raise ConfigError(
            f"loss: {loss!r} {what}; wrap the function, `loss_fn = "
            f"hook.loss({name})`, or call hook.save('losses/{name}', value) in the training loop"
        )


def given_optimizers(given: object) -> list[Optimizer]:
    """Return the given optimizers as a list.

    Args:
        given: an optimizer, a list or tuple of optimizers, or None.

    Raises:
        ConfigError: an item is not an optimizer.
    """
    some = given if isinstance(given, (list, tuple)) else [] if given is None else [given]
    for one in some:
        if not isinstance(one, Optimizer):
            raise ConfigError(
                f"optimizer: {one!r} is not a torch.optim.Optimizer; without this argument, the "
                "optimizer is found automatically"
            )
    return list(some)
