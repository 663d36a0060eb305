"""Notes of what a training's own loop saw, to compare with its run."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from vinedresser.capture import SaveConfig
from vinedresser.store.reading.reader import Run

__all__ = ["ALL", "ALWAYS", "KINDS", "STEPS", "Notes"]

ALWAYS = SaveConfig(every=1)
KINDS = (
    "losses", "weights", "biases", "gradients", "inputs", "outputs", "buffers", "optimizer_state",
)  # fmt: skip
ALL = dict.fromkeys(KINDS, ALWAYS)
STEPS = 4


class Notes:
    """What a training's own loop saw: a copy of a tensor by name and step."""

    def __init__(self) -> None:
        self.tensors: dict[tuple[str, int], Tensor] = {}

    def of(self, step: int, prefix: str, model: nn.Module) -> None:
        """Note weights and gradients as they are now; the first of a step stays."""
        for name, one in model.named_parameters():
            kind = "biases" if "bias" in name else "weights"
            self.note(step, f"{kind}/{prefix}{name}", one)
            if one.grad is not None:
                self.note(step, f"gradients/{prefix}{name}", one.grad)

    def note(self, step: int, name: str, tensor: Tensor) -> None:
        self.tensors.setdefault((name, step), tensor.detach().clone())

    def check(self, run: Run) -> None:
        """Check that the run has just these values of weights and gradients."""
        assert self.tensors
        for (name, step), tensor in self.tensors.items():
            np.testing.assert_array_equal(
                run.tensor(name).value(step), tensor.numpy(), err_msg=f"{name} at {step}"
            )
        for name in run.tensor_names(collection="gradients"):
            steps = {step for known, step in self.tensors if known == name}
            assert set(run.tensor(name).steps().tolist()) == steps, name
