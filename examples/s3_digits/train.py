"""Train a small network on the digits of `data.py`, with a position in each checkpoint."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch import nn

from examples.s3_digits.data import mixture
from vinedresser.capture import Hook
from vinedresser.data import TorchLoader


def main() -> None:
    """Train from the last checkpoint on, if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="s3://bucket/prefix")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--weights", type=Path, help="position whose weights are set again")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    loss_fn = nn.CrossEntropyLoss()
    data = mixture(arguments.data)
    if arguments.weights is not None:
        for batch, weights in json.loads(arguments.weights.read_text())["weights"][1:]:
            data.set_weights(dict(zip(data.weights, weights, strict=True)), at=batch)
    loader = TorchLoader(data, num_workers=arguments.workers)
    if arguments.checkpoint.exists():
        state = torch.load(arguments.checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(json.loads(state["position"]))
    # These two lines have the training watched, and let its classes be boosted.
    hook = Hook().watch(model, loss=loss_fn, optimizer=optimizer)
    hook.tunable("boost", data)
    while data.state_dict()["batch"] < arguments.steps:
        for batch in loader:
            images, labels = batch.values
            optimizer.zero_grad()
            loss_fn(model(images), labels).backward()
            optimizer.step()
            done = batch.number + 1
            if done % 25 == 0 or done == arguments.steps:
                save(arguments.checkpoint, model, optimizer, loader)
            if done == arguments.steps:
                break
    for error in data.damaged:
        print(f"left out: {error}")


def save(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, loader: TorchLoader
) -> None:
    """Save a checkpoint, which a kill leaves complete or as it was."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "position": json.dumps(loader.state_dict()),
    }
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


if __name__ == "__main__":
    main()
