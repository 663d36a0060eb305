"""Using a model without leaving traces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

__all__ = ["frozen"]


@contextmanager
def frozen(model: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """Put a model into evaluation mode, with parameters that require no gradients.

    Afterwards its modes, parameters and buffers, and the random state, are as they were.

    Args:
        model: the model.
        device: where it runs.
    """
    in_training = [module for module in model.modules() if module.training]
    tensors = (*model.parameters(), *model.buffers())
    trained = [one for one in tensors if one.is_leaf and one.requires_grad]
    buffers = [(one, one._version, one.clone()) for one in model.buffers()]
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.enable_grad())
        cuda = [device] if device.type == "cuda" else []
        stack.enter_context(torch.random.fork_rng(devices=cuda))
        try:
            for one in trained:
                one.requires_grad = False
            if in_training:
                model.eval()
            yield
        finally:
            for module in in_training:
                module.training = True
            with torch.no_grad():
                for one, version, values in buffers:
                    if one._version != version:
                        one.copy_(values)
            for one in trained:
                one.requires_grad = True
