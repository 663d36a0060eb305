"""One rank of a fully sharded training, with and without a hook: started by `test_fsdp`.

python -m tests.capture.torch_.parallel.fsdp_training FOLDER [stop]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from tests.capture.torch_.parallel.ranks import join
from tests.capture.torch_.zoo import EVERYTHING
from vinedresser.capture import Hook

__all__ = ["STEPS", "Net", "batch"]

STEPS = 3


def batch(step: int, rank: int) -> tuple[Tensor, Tensor]:
    """Return the inputs, [8, 6], and labels, [8], of one rank."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    labels = torch.randint(0, 3, (8,), generator=generator)
    return torch.randn(8, 6, generator=generator), labels


class Net(nn.Module):
    """A perceptron; 7 rows cannot be shared evenly, and one of its names is that of a wrapper."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first = nn.Linear(6, 7)
        self.module = nn.Sequential(nn.Linear(7, 8), nn.LayerNorm(8), nn.ReLU(inplace=True))
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.module(self.first(x).tanh()))
        return out


def local(value: Tensor) -> Tensor:
    """Return this rank's shard of a tensor."""
    part = value.to_local() if isinstance(value, DTensor) else value
    return part.detach().clone().contiguous()


def train(rank: int, path: Path | None, *, stop: bool = False) -> dict[str, Tensor]:
    """Train, and return this rank's shards of all that is left at the end.

    Args:
        rank: of this process.
        path: where the hook writes; None: no hook.
        stop: only rank 1 is asked to stop, after the first step.
    """
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = Net()
    fully_shard(model.module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=0.01)
    hook = Hook(path, collections=EVERYTHING).watch(model, loss, optimizer) if path else None
    seen = {}
    for step in range(STEPS):
        x, y = batch(step, rank)
        optimizer.zero_grad()
        loss(model(x), y).backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            seen[f"gradients/{name}.{step}"] = local(parameter.grad)
            seen[f"weights/{name}.{step}"] = local(parameter)
        if stop and step == 1 and rank == 1:
            assert hook is not None
            hook._session.signal.requested = True
        optimizer.step()
    for _ in range(2):
        # Ranks may differ: the hook must not wait for the other rank.
        model.eval()
        with torch.no_grad():
            model(batch(99, rank)[0])
        model.train()
    if hook is not None:
        hook.close()
        assert hook.problems == [], hook.problems
    left = {name: local(value) for name, value in model.state_dict().items()}
    for name, state in optimizer.state_dict()["state"].items():
        left |= {f"{name}.{key}": local(value) for key, value in state.items()}
    return {**seen, **left}


def main() -> None:
    """Train, and write what was seen, with and without a hook."""
    folder = Path(sys.argv[1])
    rank = join(folder)
    if sys.argv[2:] == ["stop"]:
        train(rank, folder / "run", stop=True)
        return
    for way, path in (("plain", None), ("hooked", folder / "run")):
        save_file(train(rank, path), folder / f"{way}-{rank}.safetensors")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
