"""Overhead of a hook in a training: ``python -m benchmarks.overhead --model mlp|resnet|tiny``.

All arms train in one process, block by block in turn, so that load on the machine affects all arms
equally; each arm has its own model and run. A ratio is the median over the rounds of a block's time
to that of the plain arm in the same round; "plain again" shows the random error of such a ratio.
The writer thread needs the second core; the CPU ratio covers the training thread only.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch import nn

from benchmarks.measure import interleave, table
from benchmarks.models import MODELS, Task
from vinedresser.capture import Collection, Hook, SaveConfig
from vinedresser.rules.base import capture_for
from vinedresser.rules.registry import RULES

__all__ = ["ARMS", "BUDGETS", "RULES_ARM", "Training", "main", "measure"]

_KINDS = ("weights", "biases", "gradients", "inputs", "outputs")
_NEVER = {name: SaveConfig(every=0) for name in ("losses", "metrics", "saved")}
_FIVE = ("min", "max", "mean", "l2", "std")

Collections = Mapping[str, SaveConfig | Collection]


def _all(every: int, reductions: tuple[str, ...] = ()) -> dict[str, SaveConfig]:
    save = SaveConfig(every=every, reductions=reductions)
    return dict.fromkeys(_KINDS, save)


# Collections that all default rules need.
RULES_ARM = "the default rules' needs"

# By arm: captured collections (None for no hook), and number of steps between expensive steps.
ARMS: dict[str, tuple[Collections | None, int]] = {
    "plain": (None, 1),
    "plain again": (None, 1),
    "hook idle": (_NEVER, 1),
    "losses every step": ({}, 1),
    RULES_ARM: (capture_for([kind() for kind in RULES.values()]).collections, 20),
    "five reductions of weights and gradients": (
        dict.fromkeys(("weights", "biases", "gradients"), SaveConfig(every=1, reductions=_FIVE)),
        1,
    ),
    "losses 1, weights 10, all 100": (_all(100) | {"weights": SaveConfig(every=10)}, 100),
    "all tensors every 100": (_all(100), 100),
    "all tensors every 10": (_all(10), 10),
    "all tensors every step": (_all(1), 1),
    "five reductions every step": (_all(1, _FIVE), 1),
}

# Budgets as ratios to plain.
BUDGETS = {
    "hook idle": {"resnet": 1.01, "mlp": 1.02, "tiny": None},
    "losses 1, weights 10, all 100": {"resnet": 1.01, "mlp": None, "tiny": None},
    RULES_ARM: {"resnet": 1.03, "mlp": 1.03, "tiny": None},
    "all tensors every 10": {"resnet": 1.06, "mlp": None, "tiny": None},
    "all tensors every step": {"resnet": 1.6, "mlp": None, "tiny": None},
    "five reductions every step": {"resnet": 1.45, "mlp": None, "tiny": None},
}


class Training:
    """One arm: a model that is repeatedly trained on one batch.

    Args:
        task: model and data.
        collections: collections that the hook captures; None for no hook.
        folder: folder of the run.
        device: device of the model.
        wrap: returns what is called and watched instead of the model.
    """

    def __init__(
        self,
        task: Task,
        collections: Collections | None,
        folder: Path,
        device: str = "cpu",
        wrap: Callable[[nn.Module], nn.Module] | None = None,
    ) -> None:
        torch.manual_seed(0)
        self.device = torch.device(device)
        model = task.make().to(self.device)
        self.model = wrap(model) if wrap else model
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.inputs = torch.randn(task.shape).to(self.device)
        self.labels = torch.randint(0, 10, task.shape[:1]).to(self.device)
        self.hook: Hook | None = None
        if collections is not None:
            self.hook = Hook(folder, collections=collections)
            self.hook.watch(self.model, self.loss, self.optimizer)
        self.segments = folder / "segments" / "0"
        self.written = 0

    def step(self) -> None:
        """Take one optimizer step."""
        self.optimizer.zero_grad()
        self.loss(self.model(self.inputs), self.labels).backward()
        self.optimizer.step()

    def block(self, steps: int) -> tuple[float, float]:
        """Run some steps; return wall time and CPU time of this thread in seconds."""
        wall, cpu = time.perf_counter(), time.thread_time()
        for _ in range(steps):
            self.step()
        synchronize(self.device)
        return time.perf_counter() - wall, time.thread_time() - cpu

    def settle(self) -> None:
        """Wait for the writer to keep it out of the next arm's time; free the disk."""
        if self.hook is not None:
            self.hook.flush()
            self.written += sum(path.stat().st_size for path in self.segments.glob("*"))
            shutil.rmtree(self.segments, ignore_errors=True)


@dataclass(frozen=True)
class Block:
    """A timed block: whether it contains an expensive step, wall and CPU seconds per step."""

    costly: bool
    wall: float
    cpu: float


class Arm:
    """Timed blocks of one arm.

    Args:
        training: timed training.
        steps: steps per block.
        period: number of steps between expensive steps; blocks with and without one are kept apart
            and weighted by frequency.
    """

    def __init__(self, training: Training, steps: int, period: int) -> None:
        self.training = training
        self.steps = steps
        self.period = max(period // steps, 1)
        self.blocks: list[Block] = []
        self.seconds = 0.0

    def run(self) -> float:
        """Time one block; return its seconds per step."""
        costly = len(self.blocks) % self.period == 0
        wall, cpu = self.training.block(self.steps)
        self.training.settle()
        self.blocks.append(Block(costly, wall / self.steps, cpu / self.steps))
        self.seconds += wall
        return wall / self.steps

    def mean(self, figure: Callable[[Block], float], plain: Arm | None = None) -> float:
        """Return the mean over a period of medians over blocks.

        Args:
            figure: value of each block.
            plain: arm whose blocks of the same round divide the values; None for absolute values.
        """
        kinds: dict[bool, list[float]] = {True: [], False: []}
        # The first block is a warm-up.
        for turn, block in list(enumerate(self.blocks))[1:]:
            base = 1.0 if plain is None else figure(plain.blocks[turn])
            kinds[block.costly].append(figure(block) / base)
        rare = median(kinds[True] or kinds[False])
        usual = median(kinds[False] or kinds[True])
        return (rare + (self.period - 1) * usual) / self.period


def wall(block: Block) -> float:
    return block.wall


def cpu(block: Block) -> float:
    return block.cpu


def distinct_tensors(training: Training) -> list[torch.Tensor]:
    """Return the distinct tensors of a full step: parameters, gradients and outputs."""
    outputs: dict[tuple[int, int], torch.Tensor] = {}

    def note(_module: nn.Module, _args: object, output: torch.Tensor) -> None:
        outputs[id(output), output._version] = output.detach().clone()
        kept.append(output)

    kept: list[torch.Tensor] = []
    handles = [module.register_forward_hook(note) for module in training.model.modules()]
    training.step()
    for handle in handles:
        handle.remove()
    parameters = list(training.model.parameters())
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return [*outputs.values(), *(parameter.detach() for parameter in parameters), *gradients]


def synchronize(device: torch.device) -> None:
    """Wait for the work queued on a device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_name(device: str) -> str:
    """Return the name of a device for the headline."""
    return torch.cuda.get_device_name() if device == "cuda" else device


def copy_time(tensors: list[torch.Tensor]) -> float:
    """Return the median seconds of 9 copies of tensors to host memory that was used before.

    From a CUDA device the copies go to pinned memory.
    """
    device = tensors[0].device
    pinned = device.type == "cuda"
    targets = [
        torch.zeros(tensor.shape, dtype=tensor.dtype, pin_memory=pinned) for tensor in tensors
    ]
    times = []
    for _ in range(9):
        synchronize(device)
        start = time.perf_counter()
        for source, target in zip(tensors, targets, strict=True):
            target.copy_(source, non_blocking=pinned)
        synchronize(device)
        times.append(time.perf_counter() - start)
    return median(times)


def report(arms: dict[str, Arm], model: str, copying: float) -> str:
    """Return the table of all arms."""
    plain, losses = arms["plain"], arms["losses every step"]
    rows = []
    for name, arm in arms.items():
        collections, period = ARMS[name]
        budget = BUDGETS.get(name, {}).get(model)
        # The cost of a save is the difference to a hook that captures only losses.
        cheap = plain if name in ("hook idle", "losses every step") else losses
        more = arm.mean(cpu, plain) - cheap.mean(cpu, plain)
        extra = more * plain.mean(cpu) * period
        # For rare saves, the random error would be multiplied, too.
        often = collections is not None and period <= 20
        rows.append(
            (
                name,
                f"{arm.mean(wall) * 1e3:.3f}",
                f"{arm.mean(wall, plain):.3f}",
                f"{arm.mean(cpu, plain):.3f}",
                "" if budget is None else f"<= {budget}",
                f"{extra * 1e3:.3f}" if often else "",
                f"{extra / copying:.2f}" if often and name.startswith("all") else "",
                f"{arm.training.written / arm.seconds / 1e6:.1f}" if collections else "",
            )
        )
    headers = (
        "arm",
        "ms per step",
        "ratio",
        "CPU ratio",
        "budget",
        "CPU ms per save",
        "x copy",
        "MB/s",
    )
    return table(rows, headers)


def measure(
    model: str,
    names: Sequence[str],
    rounds: int,
    steps: int | None,
    folder: Path | None,
    *,
    device: str = "cpu",
) -> str:
    """Run some arms and return a table of the results.

    Args:
        model: key of `MODELS`.
        names: names of the arms, including the plain one and the losses.
        rounds: timed blocks per arm.
        steps: steps per block; None for the default of the model.
        folder: folder of the runs; None for the folder of temporary files.
        device: "cpu" or "cuda", where the models train.
    """
    task = MODELS[model]
    steps = steps or task.steps
    place = Path(tempfile.mkdtemp(prefix="overhead-", dir=folder))
    try:
        arms = {
            name: Arm(
                Training(task, ARMS[name][0], place / str(index), device), steps, ARMS[name][1]
            )
            for index, name in enumerate(names)
        }
        runs: dict[str, Callable[[], float]] = {name: arm.run for name, arm in arms.items()}
        interleave(runs, rounds)
        tensors = distinct_tensors(arms["plain"].training)
        copying = copy_time(tensors)
        megabytes = sum(tensor.nbytes for tensor in tensors) / 1e6
        said = (
            f"{task.about}, on {device_name(device)}; blocks of {steps} steps, {rounds} rounds; "
            f"a full step: {len(tensors)} distinct tensors, {megabytes:.1f} MB, "
            f"copied in {copying * 1e3:.2f} ms"
        )
        found = f"{said}\n{report(arms, model, copying)}"
        for arm in arms.values():
            if arm.training.hook is not None:
                arm.training.hook.close()
        return found
    finally:
        shutil.rmtree(place)


def main() -> None:
    """Run the arms and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(MODELS), default="resnet")
    parser.add_argument("--rounds", type=int, default=8, help="timed blocks per arm")
    parser.add_argument("--steps", type=int, help="steps per block")
    parser.add_argument("--threads", type=int, default=1, help="number of torch threads")
    parser.add_argument(
        "--folder",
        type=Path,
        help="where the runs go; a disk that is slower than the training shows in the arms that "
        "save every step, a folder in memory such as /dev/shm shows the hook alone",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device: nothing was measured")
        return
    torch.set_num_threads(options.threads)
    names = list(ARMS)
    rounds, steps, folder = options.rounds, options.steps, options.folder
    print(measure(options.model, names, rounds, steps, folder, device=options.device))


if __name__ == "__main__":
    main()
