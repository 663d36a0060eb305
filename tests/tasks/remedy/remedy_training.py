"""Fits a line, with the loss, in so many steps; one that has diverged ends only when stopped.

python remedy_training.py --lr LR [--steps N] [--surge N] [--resume FILE] [--pause S]

After --surge steps, steps are 50 times as large. Every 20 steps it saves a checkpoint in its run,
where that is a directory.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from vinedresser.capture import Hook

__all__: list[str] = []


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--surge", type=int, default=10**9)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--pause", type=float, default=0.0)
    given = parser.parse_args()
    torch.manual_seed(0)
    model, loss_fn = torch.nn.Linear(4, 1), torch.nn.MSELoss()
    begun = 0
    if given.resume is not None:
        model.load_state_dict(load_file(given.resume))
        begun = int(given.resume.stem.removeprefix("step-"))
        print(f"resumed after {begun} steps")  # noqa: T201
    optimizer = torch.optim.SGD(model.parameters(), lr=given.lr)
    hook = Hook().watch(model, loss=loss_fn, optimizer=optimizer)
    saved = Path(hook.path, "checkpoints")
    x = torch.randn(64, 4)
    y = x.sum(dim=1, keepdim=True)
    done, diverged = begun, False
    while done < given.steps or diverged:
        optimizer.param_groups[0]["lr"] = given.lr * (50 if done >= given.surge else 1)
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        done += 1
        diverged = not math.isfinite(loss.item())
        if done % 20 == 0 and not diverged and "://" not in hook.path:
            saved.mkdir(exist_ok=True)
            save_file(model.state_dict(), saved / f"step-{done - begun}.safetensors")
        time.sleep(0.01 if diverged else given.pause)


if __name__ == "__main__":
    _main()
