"""Checking with what a torch model is to be watched."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Optimizer

from vinedresser.errors import ConfigError

__all__ = ["check_loss", "given_optimizers"]


def check_loss(loss: object) -> None:
    """Check that a loss can be watched.

    Args:
        loss: what was given as such.

    Raises:
        ConfigError: it cannot.
    """
    scripted = isinstance(loss, torch.jit.ScriptModule)
    if loss is not None and (scripted or not isinstance(loss, nn.Module)):
        name = getattr(loss, "__name__", "…")
        what = "is of TorchScript" if scripted else "is no torch.nn.Module"
        raise ConfigError(
            f"loss: {loss!r} {what}; wrap the function, `loss_fn = "
            f"hook.loss({name})`, or call hook.save('losses/{name}', value) in the training loop"
        )


def given_optimizers(given: object) -> list[Optimizer]:
    """Return the optimizers that are given.

    Args:
        given: one, several or None.

    Raises:
        ConfigError: one is none.
    """
    some = given if isinstance(given, (list, tuple)) else [] if given is None else [given]
    for one in some:
        if not isinstance(one, Optimizer):
            raise ConfigError(
                f"optimizer: {one!r} is no torch.optim.Optimizer; leave it out, and the one that "
                "updates the model is found"
            )
    return list(some)
