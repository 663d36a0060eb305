"""The time of a forward pass of a torch model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from vinedresser.errors import PruningError
from vinedresser.pruning.torch_.running import RAISED, Example, copied, summary

__all__ = ["forward_timer"]


def forward_timer(model: nn.Module, example: Any) -> Callable[[], float]:
    """Return a function that runs a copy of a model and returns the seconds that it took.

    Raises:
        PruningError: the model cannot be copied; or, by the function, it does not run.
    """
    copy_of = copied(model, {})
    given = Example.of(example)
    tensors = [*given.tensors, *copy_of.parameters(), *copy_of.buffers()]
    devices = {one.device for one in tensors if one.device.type != "cpu"}
    forked = [one for one in devices if one.type == "cuda"]

    def timed() -> float:
        fresh = given.fresh()
        with torch.random.fork_rng(devices=forked), torch.inference_mode():
            _synchronize(devices)
            start = time.perf_counter()
            try:
                copy_of(*fresh.args, **fresh.kwargs)
            except RAISED as error:
                raise PruningError(
                    f"the model does not run on the example: {summary(error)}"
                ) from error
            _synchronize(devices)
            return time.perf_counter() - start

    return timed


def _synchronize(devices: Iterable[torch.device]) -> None:
    """Wait for accelerators, which compute while Python continues."""
    for device in devices:
        torch.accelerator.synchronize(device)
