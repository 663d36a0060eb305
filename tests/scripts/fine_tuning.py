"""A script that fine-tunes the torch network of a small pruning; see `tests.pruning.rounds`."""

from __future__ import annotations

import argparse

import torch
from torch import nn

from tests.pruning.rounds import functions
from vinedresser.capture import Hook
from vinedresser.pruning import fine_tuning


def main() -> None:
    """Fine-tune with the hook of the script, or without one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--kind", default="")
    parser.add_argument("--no-hook", action="store_true")
    options = parser.parse_args()
    model = fine_tuning.load(functions.network)
    if options.no_hook:
        optimizer, loss = torch.optim.SGD(model.parameters(), lr=options.lr), nn.CrossEntropyLoss()
        for _ in range(options.steps):
            optimizer.zero_grad()
            loss(model(functions.example()), torch.tensor([0, 2])).backward()
            optimizer.step()
    else:
        with Hook() as hook:
            functions.train(model, hook, options.lr, options.steps, options.kind)
    teacher = fine_tuning.load_teacher(functions.network)
    assert sum(functions.filters(teacher)) == functions.FILTERS
    fine_tuning.save(model)
    functions.reach("saved")


if __name__ == "__main__":
    main()
