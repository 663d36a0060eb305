"""Finding handwritten digits in noise, pixel by pixel, on several ranks.

Rank 1 may be slow, fail or hang: `--fault slow|fail|hang`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import nn

from vinedresser.capture import Hook
from vinedresser.data import Dataset

EPOCHS, AT, SHARDS, SIZE = 7, 70, 4, 16


def main() -> None:
    """Train, from a checkpoint if one is given."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--fault", choices=("none", "slow", "fail", "hang"), default="none")
    parser.add_argument("--resume", type=Path)
    given = parser.parse_args()

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 1, 5, padding=2))
    model = nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=given.lr)
    loss_fn = nn.BCEWithLogitsLoss()
    with Hook() as hook:
        # Beside the runs: a position in the data, as checkpoints have it, is one in these files.
        scenes = Path(hook.path).with_name("scenes")
        if rank == 0 and not scenes.exists():
            write_scenes(scenes)
        dist.barrier()
        # Each rank reads its own part of each epoch.
        data = Dataset(scenes, batch_size=32, seed=1, rank=rank, ranks=ranks)
        step = begun = 0
        if given.resume:
            saved = torch.load(given.resume, weights_only=True)
            network.load_state_dict(saved["model"])
            # All ranks continue behind the batches that they have had.
            data.load_state_dict(saved["data"])
            step = begun = saved["step"]
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        while data.state_dict()["epoch"] < EPOCHS:
            for batch in data:
                if rank == 1:
                    break_down(given.fault, step, resumed=given.resume is not None)
                pictures, masks = torch.tensor(np.stack(batch.values)).split(1, dim=1)
                optimizer.zero_grad()
                loss_fn(model(pictures), masks).backward()
                optimizer.step()
                step += 1
                if rank == 0 and step % 20 == 0:
                    state = {"model": network.state_dict(), "data": data.state_dict(), "step": step}
                    save(hook, step - begun, state)
        if rank == 0:
            with hook.mode("eval"), torch.no_grad():
                pictures, masks = torch.tensor(make_scenes(seed=1)).split(1, dim=1)
                right = (network(pictures) > 0) == (masks > 0)
                hook.metric("accuracy", right.float().mean().item())
    dist.destroy_process_group()


def make_scenes(seed: int) -> NDArray[np.float32]:
    """Return pictures of a digit somewhere in noise, and where its ink is.

    Returns:
        float32 [1797, 2, 16, 16]: picture and mask.
    """
    random = np.random.default_rng(seed)
    images = load_digits().images / 16
    scenes = np.zeros((len(images), 2, SIZE, SIZE), np.float32)
    places = random.integers(0, SIZE - 8, (len(images), 2))
    for scene, image, (row, column) in zip(scenes, images, places, strict=True):
        scene[0, row : row + 8, column : column + 8] = image
    scenes[:, 1] = scenes[:, 0] > 0.3
    scenes[:, 0] += random.normal(0, 0.2, scenes[:, 0].shape)
    return scenes


def write_scenes(folder: Path) -> None:
    """Write the training data to several files."""
    unfinished = folder.with_name("unfinished")
    unfinished.mkdir(exist_ok=True)
    for number, scenes in enumerate(np.array_split(make_scenes(seed=0), SHARDS)):
        np.save(unfinished / f"{number}.npy", scenes)
    unfinished.rename(folder)


def break_down(fault: str, step: int, *, resumed: bool) -> None:
    """Load slowly, fail, or hang as if the next batch never came."""
    if fault == "slow":
        time.sleep(0.05)
    if step == AT and not resumed:
        if fault == "fail":
            raise ValueError("a damaged record")
        if fault == "hang":
            time.sleep(3600)


def save(hook: Hook, own: int, state: dict[str, object]) -> None:
    """Save a checkpoint, which is named after the steps of this run."""
    folder = Path(hook.path, "checkpoints")
    folder.mkdir(exist_ok=True)
    torch.save(state, folder / f"step-{own}.pt")


if __name__ == "__main__":
    main()
