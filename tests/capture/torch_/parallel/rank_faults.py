"""One rank of small trainings, each with a fault of distributed training or its healthy twin.

python -m tests.capture.torch_.parallel.rank_faults FOLDER TRAINING…

Started by `tests.rules.ranks`. A healthy twin is called like its fault, with "healthy_" before it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from tests.capture.torch_.parallel.ranks import join
from vinedresser.capture import Hook
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.optimisation.untrained_parameters import UntrainedParameters
from vinedresser.rules.ranks.gradient_reduction import GradientReduction
from vinedresser.rules.ranks.rank_data import RankData
from vinedresser.rules.ranks.rank_outlier import RankOutlier
from vinedresser.rules.ranks.replica_divergence import ReplicaDivergence
from vinedresser.rules.ranks.slow_rank import SlowRank
from vinedresser.rules.ranks.unsynchronised_statistics import UnsynchronisedStatistics

__all__ = ["ALTERED_AT", "CLEAN", "EVERY", "LAST", "TRAININGS", "Training", "rules"]

EVERY = 5
LAST = 30
ALTERED_AT = 12
CLEAN = 1000


_CHECKS = (ReplicaDivergence, GradientReduction, RankData, UnsynchronisedStatistics)


def rules(name: str) -> list[Rule]:
    """Return the rules that judge a training: at their defaults for the long ones."""
    if name in _LONG:
        return [*(kind() for kind in _CHECKS), RankOutlier(), SlowRank()]
    checks: list[Rule] = [kind(every=EVERY) for kind in _CHECKS]
    found = [*checks, RankOutlier(every=EVERY), SlowRank()]
    return [*found, UntrainedParameters()] if name.endswith("early_optimizer") else found


def gathered(rows: Tensor) -> Tensor:
    """Return the rows of all ranks, [2 rows, …], with a gradient of this rank's."""
    parts = [torch.empty_like(rows) for _ in range(2)]
    dist.all_gather(parts, rows.detach())
    parts[dist.get_rank()] = rows
    return torch.cat(parts)


class Training:
    """A training of one rank; subclasses override what they do otherwise.

    Args:
        name: name of the training.
        rank: this rank.
    """

    steps = LAST + 1
    rows = 8
    # Whether the hook is given the loss.
    told = True

    def __init__(self, name: str, rank: int) -> None:
        self.healthy = name.startswith("healthy_")
        self.faulty = not self.healthy
        self.rank = rank
        self.step = 0
        torch.manual_seed(100 + rank)
        self.model = self.made()
        self.wrapped = self.wrap(self.model)
        self.loss: Callable[..., Tensor] = nn.CrossEntropyLoss()
        self.optimizer = self.optimizer_of(self.model)

    @property
    def watched(self) -> nn.Module:
        """What the hook watches."""
        return self.wrapped

    def made(self) -> nn.Module:
        """Return the model, with the same weights on all ranks."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return what the training calls."""
        return DistributedDataParallel(model)

    def optimizer_of(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(model.parameters(), lr=0.01)

    def batch(self) -> tuple[Tensor, Tensor]:
        """Return inputs, [rows, 6], and labels, [rows], of one rank."""
        generator = torch.Generator().manual_seed(1000 * self.step + self.rank)
        x = torch.randn(self.rows, 6, generator=generator)
        return x, x[:, :3].argmax(1)

    def backward(self) -> None:
        """Compute the gradients of a step."""
        x, y = self.batch()
        self.loss(self.wrapped(x), y).backward()

    def after(self) -> None:
        """Act after the step of the optimizer."""

    def run(self) -> None:
        """Train."""
        for step in range(self.steps):
            self.step = step
            self.optimizer.zero_grad()
            self.backward()
            self.optimizer.step()
            self.after()


class _Reduced(Training):
    """The script itself reduces the gradients."""

    def wrap(self, model: nn.Module) -> nn.Module:
        return model

    def reduce(self, parameters: list[nn.Parameter], divisor: int = 2) -> None:
        for parameter in parameters:
            dist.all_reduce(parameter.grad)
            assert parameter.grad is not None
            parameter.grad.div_(divisor)

    def backward(self) -> None:
        super().backward()
        self.reduce(list(self.model.parameters()))


class _SharedSeed(Training):
    """Data are drawn from the global generator, seeded without the rank."""

    def __init__(self, name: str, rank: int) -> None:
        super().__init__(name, rank)
        torch.manual_seed(7 if self.faulty else 7 + rank)

    def batch(self) -> tuple[Tensor, Tensor]:
        x = torch.randn(self.rows, 6)
        return x, x[:, :3].argmax(1)


class _NoSampler(Training):
    """All ranks read the same rows in the same order."""

    def batch(self) -> tuple[Tensor, Tensor]:
        rank, self.rank = self.rank, 0 if self.faulty else self.rank
        found = super().batch()
        self.rank = rank
        return found


class _InnerModel(_NoSampler):
    """The same rows on all ranks; watched is the model inside its wrapper, as by Lightning."""

    @property
    def watched(self) -> nn.Module:
        return self.model


class _MissingReduction(_Reduced):
    """The gradient of one parameter is not reduced."""

    def backward(self) -> None:
        Training.backward(self)
        self.reduce([*self.model.parameters()][: -1 if self.faulty else None])


class _GatheredEvaluation(_Reduced):
    """Nothing is reduced, and evaluations gather the outputs of all ranks."""

    steps = 4 * EVERY + 1

    def backward(self) -> None:
        if self.healthy:
            super().backward()
        else:
            Training.backward(self)

    def after(self) -> None:
        if self.step % 4 == 0:
            self.model.eval()
            with torch.no_grad():
                gathered(self.model(self.batch()[0]))
            self.model.train()


class _Summed(_Reduced):
    """Gradients of means are summed; the twin divides its loss by the rows of all ranks."""

    def backward(self) -> None:
        x, y = self.batch()
        loss = self.loss(self.model(x), y)
        (loss if self.faulty else loss / dist.get_world_size()).backward()
        self.reduce(list(self.model.parameters()), 1)


class _ClippedFirst(_Reduced):
    """Each rank clips its own gradient; the twin clips the mean."""

    def backward(self) -> None:
        Training.backward(self)
        for step in ("clip", "reduce") if self.faulty else ("reduce", "clip"):
            if step == "clip":
                clip_grad_norm_(self.model.parameters(), 0.1)
            else:
                self.reduce(list(self.model.parameters()))


class _Accumulated(Training):
    """Three micro-batches a step, each of them reduced; the twin reduces the last only."""

    def backward(self) -> None:
        wrapped = self.wrapped
        assert isinstance(wrapped, DistributedDataParallel)
        for part in range(3):
            with wrapped.no_sync() if self.healthy and part < 2 else nullcontext():
                x, y = self.batch()
                (self.loss(wrapped(x), y) / 3).backward()


class _Divided(Training):
    """The loss is divided by the number of ranks; that of the twin by its two micro-batches."""

    def backward(self) -> None:
        wrapped = self.wrapped
        assert isinstance(wrapped, DistributedDataParallel)
        parts = 1 if self.faulty else 2
        for part in range(parts):
            with wrapped.no_sync() if part + 1 < parts else nullcontext():
                x, y = self.batch()
                (self.loss(wrapped(x), y) / dist.get_world_size()).backward()


class _DividedFunction(_Divided):
    """The same with a function that the hook is not given."""

    told = False

    def __init__(self, name: str, rank: int) -> None:
        super().__init__(name, rank)
        self.loss = nn.functional.cross_entropy


class _FrozenOnOne(Training):
    """The optimizer of rank 1 does not have the last layer."""

    def optimizer_of(self, model: nn.Module) -> torch.optim.Optimizer:
        parameters = list(model.parameters())
        left_out = self.faulty and self.rank == 1
        return torch.optim.Adam(parameters[: -2 if left_out else None], lr=0.01)


class _StaleMasters(Training):
    """The optimizer updates master weights, which rank 1 does not copy to the model."""

    def optimizer_of(self, model: nn.Module) -> torch.optim.Optimizer:
        self.masters = [parameter.detach().clone() for parameter in model.parameters()]
        return torch.optim.SGD(model.parameters(), lr=0.0)

    def after(self) -> None:
        with torch.no_grad():
            for master, one in zip(self.masters, self.model.parameters(), strict=True):
                assert one.grad is not None
                master.sub_(one.grad, alpha=0.1)
                if self.healthy or self.rank == 0:
                    one.copy_(master)


class _OtherRate(Training):
    """Rank 1 has another learning rate."""

    def optimizer_of(self, model: nn.Module) -> torch.optim.Optimizer:
        faulty = self.faulty and self.rank == 1
        return torch.optim.Adam(model.parameters(), lr=0.02 if faulty else 0.01)


class _StartsApart(_Reduced):
    """The script reduces gradients, but each rank has initial weights of its own."""

    def made(self) -> nn.Module:
        model = super().made()
        if self.faulty:
            for parameter in model.parameters():
                nn.init.normal_(parameter, std=0.3)
        return model


class _Flipped(Training):
    """One bit of one weight is flipped on rank 1."""

    def after(self) -> None:
        if self.faulty and self.step == ALTERED_AT and self.rank == 1:
            with torch.no_grad():
                weight = self.model.get_parameter("3.weight").view(torch.int32)
                weight[1, 2] ^= 1


class _Uneven(Training):
    """The last batch of an epoch is smaller on rank 1."""

    def batch(self) -> tuple[Tensor, Tensor]:
        short = self.faulty and self.rank == 1 and self.step == 17
        x, y = super().batch()
        return (x[:5], y[:5]) if short else (x, y)


class _OneCheckpoint(_SharedSeed):
    """After ten steps, all ranks load the checkpoint of rank 0, with its random state."""

    def __init__(self, name: str, rank: int) -> None:
        super().__init__(name, rank)
        torch.manual_seed(7 + rank)

    def after(self) -> None:
        if self.step == 10:
            states: list[Any] = [torch.get_rng_state(), torch.get_rng_state()]
            dist.all_gather(states, torch.get_rng_state())
            torch.set_rng_state(states[0 if self.faulty else self.rank])


class _SequenceParallel(nn.Module):
    """A layer norm of this rank's half of the rows, and a tensor-parallel perceptron."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self.norm = nn.LayerNorm(6)
        self.first, self.last = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        half = self.norm(x.chunk(2)[self.rank])
        out: Tensor = self.last(self.first(gathered(half)).relu())
        return out


class _TensorParallel(Training):
    """The gradient of a replicated layer norm is not reduced."""

    def made(self) -> nn.Module:
        torch.manual_seed(0)
        return _SequenceParallel(self.rank)

    def wrap(self, model: nn.Module) -> nn.Module:
        mesh = init_device_mesh("cpu", (2,))
        plan = {"first": ColwiseParallel(), "last": RowwiseParallel()}
        return parallelize_module(model, mesh, plan)

    def batch(self) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(self.step)
        x = torch.randn(self.rows, 6, generator=generator)
        return x, x[:, :3].argmax(1)

    def backward(self) -> None:
        super().backward()
        if self.healthy:
            norm = self.model.get_submodule("norm")
            for parameter in norm.parameters():
                dist.all_reduce(parameter.grad)


class _FirstOptimizer(Training):
    """The optimizer is made before the wrapper, which keeps the parameters; nothing is wrong."""

    def wrap(self, model: nn.Module) -> nn.Module:
        self.early = super().optimizer_of(model)
        return super().wrap(model)

    def optimizer_of(self, model: nn.Module) -> torch.optim.Optimizer:
        return self.early if self.faulty else super().optimizer_of(model)


class _Sharded(Training):
    """A fully sharded model; the optimizer may be made before it is sharded."""

    steps = 105

    def made(self) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))

    def wrap(self, model: nn.Module) -> nn.Module:
        self.early = super().optimizer_of(model)
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        return model

    def optimizer_of(self, model: nn.Module) -> torch.optim.Optimizer:
        return self.early if self.faulty else super().optimizer_of(model)


class _ShardedNoSampler(_NoSampler):
    """The same rows on all ranks of a fully sharded model."""

    def wrap(self, model: nn.Module) -> nn.Module:
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        return model


class NaiveSyncBatchNorm1d(nn.BatchNorm1d):
    """Batch normalization with the statistics of all ranks, unless a rank leaves the others."""

    alone = False

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (as in torch)
        both = input if self.alone else gathered(input)
        rows = slice(None) if self.alone else slice(dist.get_rank() * len(input), None)
        out: Tensor = super().forward(both)
        return out[rows][: len(input)]


class _Unsynchronised(Training):
    """Statistics of batch normalization that should be those of all ranks are not."""

    def made(self) -> nn.Module:
        torch.manual_seed(0)
        norm = NaiveSyncBatchNorm1d(16)
        norm.alone = self.faulty
        return nn.Sequential(nn.Linear(6, 16), norm, nn.ReLU(), nn.Linear(16, 3))


class _Corrupt(Training):
    """From step 120 on, rank 1 has labels of other rows."""

    steps = 250

    def batch(self) -> tuple[Tensor, Tensor]:
        x, y = super().batch()
        return x, y.roll(1) if self.faulty and self.rank == 1 and self.step >= 120 else y


class _Scaled(Training):
    """From step 260 on, rank 1 multiplies its loss."""

    steps = 501

    def backward(self) -> None:
        x, y = self.batch()
        # Labels that cannot be predicted well keep the gradients from vanishing.
        y = torch.where(torch.arange(len(y)) < 4, y, y.roll(1))
        scaled = self.faulty and self.rank == 1 and self.step >= 260
        (self.loss(self.wrapped(x), y) * (4 if scaled else 1)).backward()


class _Slow(Training):
    """Rank 1 waits for its data."""

    steps = 205

    def batch(self) -> tuple[Tensor, Tensor]:
        if self.faulty and self.rank == 1:
            # What is slow about a rank is the time that passes.
            time.sleep(0.012)
        return super().batch()


class _MoreRanks(Training):
    """The learning rate does not depend on the number of ranks; that of the twin does."""

    def optimizer_of(self, model: nn.Module) -> torch.optim.Optimizer:
        world = 2 if self.faulty else dist.get_world_size()
        return torch.optim.SGD(model.parameters(), lr=0.05 * world)


class _Clean(Training):
    """Many steps of a healthy training."""

    steps = CLEAN


class _CleanSharded(_Sharded):
    """Many steps of a healthy, fully sharded training."""

    steps = CLEAN


_KINDS: dict[str, Callable[[str, int], Training]] = {
    "shared_seed": _SharedSeed,
    "no_sampler": _NoSampler,
    "inner_model": _InnerModel,
    "missing_reduction": _MissingReduction,
    "gathered_evaluation": _GatheredEvaluation,
    "summed": _Summed,
    "clipped_first": _ClippedFirst,
    "accumulated": _Accumulated,
    "divided": _Divided,
    "divided_function": _DividedFunction,
    "frozen_on_one": _FrozenOnOne,
    "stale_masters": _StaleMasters,
    "other_rate": _OtherRate,
    "starts_apart": _StartsApart,
    "flipped": _Flipped,
    "uneven": _Uneven,
    "one_checkpoint": _OneCheckpoint,
    "tensor_parallel": _TensorParallel,
    "first_optimizer": _FirstOptimizer,
    "early_optimizer": _Sharded,
    "sharded_no_sampler": _ShardedNoSampler,
    "unsynchronised": _Unsynchronised,
    "corrupt": _Corrupt,
    "scaled": _Scaled,
    "slow": _Slow,
    "more_ranks": _MoreRanks,
}
TRAININGS = {
    **_KINDS,
    **{f"healthy_{name}": kind for name, kind in _KINDS.items()},
    "healthy_clean": _Clean,
    "healthy_clean_sharded": _CleanSharded,
}
_LONG = frozenset({"healthy_clean", "healthy_clean_sharded"})


def main() -> None:
    """Train the named trainings."""
    folder = Path(sys.argv[1])
    rank = join(folder)
    for name in sys.argv[2:] or TRAININGS:
        training = TRAININGS[name](name, rank)
        collections = capture_for(rules(name)).collections
        hook = Hook(folder / name, collections=collections)
        loss = training.loss if training.told else None
        with hook.watch(training.watched, loss, training.optimizer):
            training.run()
        assert hook.problems == [] or name == "early_optimizer", (name, hook.problems)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
