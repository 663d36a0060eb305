"""One rank of healthy distributed trainings of unusual kinds, on which no rule of ranks may fire.

python -m tests.capture.torch_.parallel.rank_variants FOLDER

Started by `tests.rules.ranks`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from tests.capture.torch_.parallel.rank_faults import EVERY, Training, rules
from tests.capture.torch_.parallel.ranks import join
from vinedresser.capture import Hook
from vinedresser.rules.base import capture_for

__all__ = ["VARIANTS"]


class _OwnLoss(Training):
    """The mean over all ranks of the rows, whose number varies: losses are divided by it."""

    def batch(self) -> tuple[Tensor, Tensor]:
        x, y = super().batch()
        rows = 3 + (self.step + 2 * self.rank) % 5
        return x[:rows], y[:rows]

    def backward(self) -> None:
        x, y = self.batch()
        rows = torch.tensor(float(len(x)))
        dist.all_reduce(rows)
        loss = nn.functional.cross_entropy(self.wrapped(x), y, reduction="sum")
        (loss * dist.get_world_size() / rows).backward()


class _HalfSquares(Training):
    """Half the mean squared error, on two ranks."""

    def __init__(self, name: str, rank: int) -> None:
        super().__init__(name, rank)
        self.loss = nn.MSELoss()

    def backward(self) -> None:
        x, _ = self.batch()
        (self.loss(self.wrapped(x), x[:, :3]) / 2).backward()


class _Weighted(Training):
    """The loss has a weight, as large as 1 / number of ranks."""

    def backward(self) -> None:
        x, y = self.batch()
        (0.5 * self.loss(self.wrapped(x), y)).backward()


class _TwoViews(Training):
    """The mean of the losses of two views of the rows."""

    def backward(self) -> None:
        x, y = self.batch()
        first, second = self.wrapped(torch.cat([x, x + 0.1 * torch.randn_like(x)])).chunk(2)
        ((self.loss(first, y) + self.loss(second, y)) / 2).backward()


class _BucketView(Training):
    """Gradients are views of the buckets."""

    def wrap(self, model: nn.Module) -> nn.Module:
        return DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)


class _Unused(Training):
    """A layer is used in every second step only."""

    def made(self) -> nn.Module:
        model = super().made()
        model.add_module("extra", _Sometimes())
        return model

    def wrap(self, model: nn.Module) -> nn.Module:
        return DistributedDataParallel(model, find_unused_parameters=True)


class _Sometimes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.layer = nn.Linear(3, 3)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out: Tensor = self.layer(x) if self.calls % 2 else x
        return out


class _Compressed(Training):
    """Gradients are reduced in half precision."""

    def wrap(self, model: nn.Module) -> nn.Module:
        wrapped = DistributedDataParallel(model)
        wrapped.register_comm_hook(None, fp16_compress_hook)
        return wrapped


class _Zero(Training):
    """Each rank updates a part of the parameters, and sends them to the others."""

    def optimizer_of(self, model: nn.Module) -> torch.optim.Optimizer:
        # Its module warns when it is imported.
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)


class _Evaluated(Training):
    """Rank 0 evaluates, and draws random numbers that the others do not."""

    def after(self) -> None:
        if self.rank == 0 and self.step % 4 == 0:
            self.model.eval()
            with torch.no_grad():
                self.model(torch.randn(8, 6))
            self.model.train()


class _Checkpointed(Training):
    """Activations are computed again in the backward pass, in bfloat16."""

    def made(self) -> nn.Module:
        return _Again(super().made())

    def backward(self) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            super().backward()


class _Again(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = checkpoint(self.inner, x, use_reentrant=False)
        return out


class _Closure(Training):
    """The optimizer runs the model itself."""

    def optimizer_of(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)

    def run(self) -> None:
        def closure() -> float:
            self.optimizer.zero_grad()
            x, y = self.batch()
            loss = self.loss(self.wrapped(x), y)
            loss.backward()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            return float(mean) / 2

        for step in range(self.steps):
            self.step = step
            self.optimizer.step(closure)  # type: ignore[arg-type, unused-ignore]


class _Clipped(Training):
    """Gradients are clipped after their reduction, and a third of the steps accumulate."""

    def backward(self) -> None:
        super().backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.05)


class _WholeBatch(Training):
    """All ranks have the same rows at each step, as in a regression on all rows."""

    def batch(self) -> tuple[Tensor, Tensor]:
        x = torch.linspace(-1, 1, 48).reshape(8, 6)
        return x, x[:, :3].argmax(1)


class _SameSeed(Training):
    """One seed for all ranks, whose rows differ."""

    def __init__(self, name: str, rank: int) -> None:
        super().__init__(name, rank)
        torch.manual_seed(5)


class _Pipeline(Training):
    """Each rank has another stage of a model, with the same names of its layers."""

    def made(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 3))

    def wrap(self, model: nn.Module) -> nn.Module:
        return model


class _Experts(Training):
    """Experts are not reduced; all else is."""

    def made(self) -> nn.Module:
        model = super().made()
        model.add_module("expert", nn.Linear(3, 3))
        return model

    def wrap(self, model: nn.Module) -> nn.Module:
        names = [f"expert.{name}" for name in ("weight", "bias")]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
        return DistributedDataParallel(model)


VARIANTS: dict[str, Callable[[str, int], Training]] = {
    "own_loss": _OwnLoss,
    "half_squares": _HalfSquares,
    "weighted": _Weighted,
    "two_views": _TwoViews,
    "bucket_view": _BucketView,
    "unused": _Unused,
    "compressed": _Compressed,
    "zero": _Zero,
    "evaluated": _Evaluated,
    "checkpointed": _Checkpointed,
    "closure": _Closure,
    "clipped": _Clipped,
    "whole_batch": _WholeBatch,
    "same_seed": _SameSeed,
    "pipeline": _Pipeline,
    "experts": _Experts,
}


def main() -> None:
    """Train all variants."""
    folder = Path(sys.argv[1])
    rank = join(folder)
    for name, kind in VARIANTS.items():
        training = kind(name, rank)
        training.steps = 8 * EVERY
        collections = capture_for(rules(name)).collections
        hook = Hook(folder / name, collections=collections)
        with hook.watch(training.wrapped, training.loss, training.optimizer):
            training.run()
        assert hook.problems == [], (name, hook.problems)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
