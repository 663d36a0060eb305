"""A script without a hook that trains N networks successively.

    python unhooked_training.py --steps N [--trainings N] [--nan N] [--pause SECONDS] [--nothing]

The losses of training number --nan become NaN at step 20; it runs until it is stopped.
"""

from __future__ import annotations

import argparse
import time

__all__: list[str] = []


def _train(steps: int, pause: float, *, broken: bool) -> None:
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    loss_fn = torch.nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(16, 4)
    y = x.sum(dim=1, keepdim=True)
    for step in range(10**6 if broken else steps):
        optimizer.zero_grad()
        loss = loss_fn(model(x * float("nan") if broken and step >= 20 else x), y)
        loss.backward()
        optimizer.step()
        time.sleep(pause)
    print(f"weights {[value.tolist() for value in model.parameters()]}")  # noqa: T201


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--trainings", type=int, default=1)
    parser.add_argument("--nan", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--nothing", action="store_true")
    given = parser.parse_args()
    if given.nothing:
        return
    for number in range(1, given.trainings + 1):
        _train(given.steps, given.pause, broken=number == given.nan)


if __name__ == "__main__":
    _main()
