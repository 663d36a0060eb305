"""Steps of a model without a call of it."""

from __future__ import annotations

import torch
from torch import nn

from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.forward.hook_selection import FORWARD_KINDS
from vinedresser.frameworks.torch_.bare_tensors import BareTensors
from vinedresser.frameworks.torch_.names import own_class, unwrapped


def report_missing_forward(recording: Recording, root: nn.Module, shield: Shield) -> None:
    """Report a step in which tensors of a forward are due, but the model was not called.

    Args:
        root: the model as the training should call it.
        shield: reports the problem.
    """
    asked = [kind for kind in FORWARD_KINDS if kind in recording.due.collections()]
    if not asked or isinstance(root, BareTensors):
        return
    remedy = "watch the object that the training calls, such as that of torch.compile"
    if isinstance(root, torch.jit.ScriptModule):
        remedy = "TorchScript modules cannot be captured: train the original module"
    shield.report(
        f"{asked[-1]} are due, but no call of the watched {own_class(unwrapped(root)).__name__} "
        f"was seen; {remedy}"
    )
