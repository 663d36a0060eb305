"""One rank of data-parallel trainings, each with and without a hook: started by `test_ddp`.

python -m tests.capture.torch_.parallel.ddp_training FOLDER [NAME …]
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.capture.hook.trainings import EVERYTHING
from tests.capture.torch_.parallel.ranks import join
from vinedresser.capture import Hook

__all__ = ["STEPS", "TRAININGS", "TwoHeads", "batch", "plain_model"]

STEPS = 4
_COLLECTIONS = {**EVERYTHING, "buffers": EVERYTHING["weights"]}


def batch(step: int, rank: int, micro: int = 0) -> tuple[Tensor, Tensor]:
    """Return the inputs, [8, 6], and labels, [8], of one rank."""
    generator = torch.Generator().manual_seed(1000 * step + 10 * rank + micro)
    labels = torch.randint(0, 3, (8,), generator=generator)
    return torch.randn(8, 6, generator=generator), labels


def plain_model() -> nn.Sequential:
    """Return a model with a buffer, and a layer that writes in place."""
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 3))


class TwoHeads(nn.Module):
    """Uses one head or the other: in odd steps each rank its own, in even ones all the first."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.heads = nn.ModuleList([nn.Linear(8, 3), nn.Linear(8, 3)])
        self.which = 0

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.heads[self.which](self.body(x).relu())
        return out


def train(name: str, rank: int, hooked: Path | None) -> dict[str, Tensor]:
    """Train, and return parameters, buffers and the optimizer's momenta at the end.

    Args:
        name: "plain", "accumulated", "unused" or "compiled".
        rank: of this process.
        hooked: where the hook writes; None: no hook.
    """
    torch.manual_seed(5)
    inner = TwoHeads() if name == "unused" else plain_model()
    model: nn.Module = DistributedDataParallel(inner, find_unused_parameters=name == "unused")
    if name == "compiled":
        model = torch.compile(model, backend="eager")  # type: ignore[assignment]
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(inner.parameters(), lr=0.01)
    hook = Hook(hooked, collections=_COLLECTIONS).watch(model, loss, optimizer) if hooked else None
    micros = 2 if name == "accumulated" else 1
    for step in range(STEPS):
        optimizer.zero_grad()
        if isinstance(inner, TwoHeads):
            inner.which = rank if step % 2 else 0
        for micro in range(micros):
            waits = name == "accumulated" and micro + 1 < micros
            with model.no_sync() if waits else nullcontext():  # type: ignore[operator]
                x, y = batch(step, rank, micro)
                (loss(model(x), y) / micros).backward()
        optimizer.step()
    if hook is not None:
        hook.close()
        assert hook.problems == [], hook.problems
    final = {key: value.clone() for key, value in inner.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        final |= {f"{number}.{key}": value.clone() for key, value in state.items()}
    return final


TRAININGS = ("plain", "accumulated", "unused", "compiled")


def die(folder: Path, rank: int) -> None:
    """Kill rank 1 during the training, while rank 0 waits for it."""
    hook = Hook(folder / "run")
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook.watch(model, nn.MSELoss(), optimizer)
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()
        hook.metric("told", 1.0)
        optimizer.step()
    hook.flush()
    # For the test, which waits for it; whole at once.
    (folder / f"begins-{rank}").write_text(str(os.getpid()), encoding="utf-8")
    (folder / f"begins-{rank}").rename(folder / f"pid-{rank}")
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def main() -> None:
    """Run all trainings with and without a hook, and write the results."""
    folder = Path(sys.argv[1])
    if sys.argv[2:] == ["die"]:
        die(folder, int(os.environ["RANK"]))
        return
    rank = join(folder)
    for name in sys.argv[2:] or TRAININGS:
        for way, path in (("plain", None), ("hooked", folder / name)):
            save_file(train(name, rank, path), folder / f"{name}-{way}-{rank}.safetensors")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
