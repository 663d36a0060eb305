"""Keras trainings on the torch backend, in a separate process because of the backend.

``python -m tests.capture.keras_.torch_trainings FOLDER`` prints the result of each as one JSON
object.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch

from tests.capture.keras_.zoo import ZOO, cnn, everything, final_bits, images, seeded
from vinedresser.capture import Hook, open_run

__all__ = ["main"]


def _identity(name: str, folder: Path) -> dict[str, Any]:
    """Train with and without a hook; return the comparison and the contents of the run."""
    plain = final_bits(ZOO[name])
    hook = Hook(folder, collections=everything(2))
    hooked = final_bits(ZOO[name], hook.watch)
    hook.close()
    run = open_run(folder)
    return {
        "equal": hooked == plain,
        "problems": hook.problems,
        "steps": run.steps("train").tolist(),
        "names": sorted(run.tensor_names()),
    }


def _loop(folder: Path) -> dict[str, Any]:
    """Train in a custom loop and compare the captured tensors with its own."""
    model, optimizer = seeded(cnn), keras.optimizers.SGD(0.1)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    hook = Hook(folder, collections=everything()).watch(model, loss=loss_fn, optimizer=optimizer)
    x, y = images()
    losses, gradients, weights = [], [], []
    for start in (0, 8, 16):
        batch = slice(start, start + 8)
        loss = loss_fn(torch.as_tensor(y[batch]), model(x[batch], training=True))
        model.zero_grad()
        loss.backward()
        variables = model.trainable_variables
        losses.append(loss.item())
        weights.append(variables[0].value.detach().clone())
        gradients.append(variables[0].value.grad.clone())
        with torch.no_grad():
            optimizer.apply([variable.value.grad for variable in variables], variables)
    model(x[:4], training=False)
    hook.close()
    run = open_run(folder)
    kernel, gradient = run.tensor("weights/conv2d.kernel"), run.tensor("gradients/conv2d.kernel")
    return {
        "steps": run.steps("train").tolist(),
        "evaluations": run.steps("eval").tolist(),
        "problems": hook.problems,
        "losses": run.scalars("losses", mode="train")[f"losses/{loss_fn.name}"].values.tolist(),
        "own losses": losses,
        "weights": [bool((kernel.value(i) == one.numpy()).all()) for i, one in enumerate(weights)],
        "gradients": [
            bool((gradient.value(i) == one.numpy()).all()) for i, one in enumerate(gradients)
        ],
    }


def main(folder: Path) -> None:
    """Run all trainings and print the results."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    found: dict[str, Any] = {name: _identity(name, folder / name) for name in ZOO}
    found["loop"] = _loop(folder / "loop")
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
