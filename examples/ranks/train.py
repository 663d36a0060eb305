"""Handwritten digits on several ranks, of which rank 1 may fail or hang: `--fault fail|hang`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from vinedresser.capture import Hook

EPOCHS, AT = 8, 100


def main() -> None:
    """Train, from a checkpoint if one is given."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--fault", choices=("none", "fail", "hang"), default="none")
    parser.add_argument("--resume", type=Path)
    given = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model = nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=given.lr)
    step = begun = 0
    if given.resume:
        saved = torch.load(given.resume, weights_only=True)
        network.load_state_dict(saved["model"])
        step = begun = saved["step"]

    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16).float(), torch.tensor(labels))
    # Each rank trains on its own part of each epoch.
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data)
    loss_fn = nn.CrossEntropyLoss()
    with Hook() as hook:
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            for x, y in DataLoader(data, batch_size=32, sampler=sampler):
                if rank == 1 and step == AT and not given.resume:
                    break_down(given.fault)
                optimizer.zero_grad()
                loss_fn(model(x), y).backward()
                optimizer.step()
                step += 1
                if rank == 0 and step % 20 == 0:
                    save(hook, step, step - begun, network)
        if rank == 0:
            with hook.mode("eval"), torch.no_grad():
                right = network(data.tensors[0]).argmax(1) == data.tensors[1]
                hook.metric("accuracy", right.float().mean().item())
    dist.destroy_process_group()


def break_down(fault: str) -> None:
    """Fail, or hang as if the next batch never came."""
    if fault == "fail":
        raise ValueError("a damaged record")
    if fault == "hang":
        time.sleep(3600)


def save(hook: Hook, step: int, own: int, network: nn.Module) -> None:
    """Save a checkpoint, which is named after the steps of this run."""
    folder = Path(hook.path, "checkpoints")
    folder.mkdir(exist_ok=True)
    torch.save({"model": network.state_dict(), "step": step}, folder / f"step-{own}.pt")


if __name__ == "__main__":
    main()
