"""One training of a case, as a user would write it, with a hook."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.faults.cases import Case
from benchmarks.faults.data import Data, load_data, mixed_axes
from benchmarks.faults.history import History, Trained
from benchmarks.faults.networks.layers import Layer, build_model
from benchmarks.faults.networks.losses import LOSSES
from benchmarks.faults.networks.optimizers import make_optimizer, rate_of
from benchmarks.faults.settings import TrainSettings
from benchmarks.faults.targets import correct, targets
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.hook.hook import Hook
from vinedresser.errors import ConfigError

__all__ = ["Training", "seeded", "train"]


def train(
    case: Case,
    directory: Path,
    capture: CaptureConfig,
    *,
    seed: int = 0,
    metrics: bool = True,
    further: tuple[Path, CaptureConfig] | None = None,
) -> Trained:
    """Train a case to its end.

    Args:
        case: case to train.
        directory: directory of the run.
        capture: capture configuration of the hook.
        seed: seed of the initial weights, the order of the rows and dropout.
        metrics: whether to report accuracy or R² to the hook.
        further: directory and capture configuration of a second run of the same training, for the
            peers.
    """
    training = seeded(case, seed, metrics=metrics)
    training.watch(directory, capture)
    if further:
        training.watch(*further)
    return training.run()


def seeded(case: Case, seed: int, *, metrics: bool) -> Training:
    """Build the training of a case on one thread.

    Args:
        case: case to train.
        seed: seed of the initial weights, the order of the rows and dropout.
        metrics: whether to report accuracy or R² to the hooks.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    return Training(case, seed, metrics=metrics)


class Training:
    """A training loop.

    Args:
        case: case to train.
        seed: seed of the order of the rows.
        metrics: whether to report accuracy or R² to the hooks.
    """

    def __init__(self, case: Case, seed: int, *, metrics: bool) -> None:
        self.case = case
        self.seed = seed
        self.metrics = metrics
        self.data: Data = load_data(case.data)
        row = self._read(self.data.x[:1])
        self.model, owners = build_model(case.model, row, case.init, self.data.vocabulary)
        self._penalised = [(self.model.get_submodule(name), owners[name]) for name in owners]
        updated = _updated(self.model, owners, case.train)
        self.optimizer = make_optimizer(case.optimizer, updated)
        self.loss_fn = LOSSES[case.loss].make()
        self.history = History()
        self._hooks: list[Hook] = []

    def watch(self, directory: Path, capture: CaptureConfig) -> None:
        """Add a hook."""
        case = self.case
        hook = Hook(
            directory,
            collections=capture.collections,
            parameters={
                "lr": case.optimizer["lr"],
                "optimizer": case.optimizer["name"],
                "batch_size": case.batch,
            },
            total_steps=case.steps,
        )
        self._hooks.append(hook.watch(self.model, loss=self.loss_fn, optimizer=self.optimizer))

    def run(self) -> Trained:
        """Train, and return the completed training."""
        case = self.case
        first = {name: value.clone() for name, value in self.model.state_dict().items()}
        epoch = math.ceil(len(self.data.x) / case.batch)
        interval = min(max(epoch, case.steps // 50), max(1, case.steps // 10))
        self.model.train(not case.train.eval_mode)
        batches = self.batches()
        with contextlib.ExitStack() as stack:
            for hook in self._hooks:
                stack.callback(hook.close)
            for step in range(case.steps):
                if step % interval == 0:
                    self._evaluate(step)
                self._step(step, batches)
                if (step + 1) % epoch == 0:
                    self.history.end_epoch(step + 1)
            self._evaluate(case.steps)
            self.history.end_epoch(case.steps)
        return Trained(
            self.model,
            first,
            self.data,
            case.loss,
            self.loss_fn,
            self.history,
            case.train.eval_in_train_mode,
            _chunk(case),
            case.train.double_softmax,
        )

    def first_step(self) -> None:
        """Take the first step only."""
        self.model.train(not self.case.train.eval_mode)
        self._step(0, self.batches())

    def take(self, x: Tensor, y: Tensor) -> Tensor:
        """Take a step with one batch; return its loss.

        Args:
            x: rows, [batch, ...].
            y: targets of the rows.
        """
        if self.case.train.zero_grad:
            self.optimizer.zero_grad()
        _, loss = self._gradients(x, y)
        self._clip()
        if self.case.train.step:
            self.optimizer.step()
        return loss

    def _gradients(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Compute output and loss of a batch, and add its gradients to the present ones."""
        output = self._forward(x)
        loss = self._loss(output, y)
        total = loss + self._penalty()
        if self.case.train.backward and total.requires_grad:
            total.backward()
        return output, loss

    def _step(self, step: int, batches: Iterator[tuple[Tensor, Tensor]]) -> None:
        settings = self.case.train
        self._schedule(step)
        if settings.stop_after and step == settings.stop_after:
            parameters = list(self.model.parameters())
            for parameter in parameters[: len(parameters) // 2]:
                parameter.requires_grad_(False)
        if settings.zero_grad:
            self.optimizer.zero_grad()
        for _ in range(max(1, settings.accumulate)):
            x, y = next(batches)
            output, loss = self._gradients(x, y)
        self._clip()
        before = self._weights() if step % 20 == 0 else []
        if settings.step:
            self.optimizer.step()
        if before:
            self.history.updates.append(_update(before, self._weights()))
        self.history.batch(float(loss.detach()), self._score(output.detach(), y))

    def _forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.model(x)
        return output.softmax(dim=-1) if self.case.train.double_softmax else output

    def _loss(self, output: Tensor, y: Tensor) -> Tensor:
        wanted = targets(y, self.data.classes, self.case.loss, output.shape[-1])
        if self.data.flat or self.case.train.squeeze_target:
            wanted = wanted.reshape(len(wanted))
        return _value(self.loss_fn, output, wanted)

    def _penalty(self) -> Tensor | float:
        """Return the sum of the layers' regularisers."""
        total: Tensor | float = 0.0
        for module, layer in self._penalised:
            for weight in module.parameters():
                if weight.ndim > 1 and layer.l1:
                    total = total + layer.l1 * weight.abs().sum()
                if weight.ndim > 1 and layer.l2:
                    total = total + layer.l2 * weight.square().sum()
        return total

    def _clip(self) -> None:
        norm = self.case.train.clip_norm or self.case.optimizer.get("clipnorm", 0.0)
        if norm:
            nn.utils.clip_grad_norm_(self.model.parameters(), norm)
        if value := self.case.optimizer.get("clipvalue", 0.0):
            nn.utils.clip_grad_value_(self.model.parameters(), value)

    def _schedule(self, step: int) -> None:
        """Set the learning rate."""
        settings = self.case.train
        rate = rate_of(self.case.optimizer, step)
        length = settings.schedule_steps or self.case.steps
        rate *= _FACTORS[settings.schedule](min(step / length, 1.0))
        if settings.schedule != "constant" or self.case.optimizer.get("decay"):
            for group in self.optimizer.param_groups:
                group["lr"] = rate

    def _evaluate(self, step: int) -> None:
        """Evaluate on the validation rows in the way of the loop."""
        self.model.train(self.case.train.eval_in_train_mode)
        outputs, losses = [], []
        with contextlib.ExitStack() as stack:
            for hook in self._hooks:
                stack.enter_context(hook.mode("eval"))
            stack.enter_context(torch.no_grad())
            chunk = _chunk(self.case)
            parts = zip(self.data.x_val.split(chunk), self.data.y_val.split(chunk), strict=True)
            for x, y in parts:
                outputs.append(self._forward(self._read(x)))
                losses.append(float(self._loss(outputs[-1], y)) * len(y))
            score = self._score(torch.cat(outputs), self.data.y_val)
            for hook in self._hooks if self.metrics else ():
                hook.metric("accuracy" if self.data.classes else "r2", score)
        self.history.val.append((step, sum(losses) / len(self.data.x_val), score))
        self.model.train(not self.case.train.eval_mode)

    def _score(self, output: Tensor, y: Tensor) -> float:
        """Return accuracy, or R² against the mean of all training targets."""
        if self.data.classes:
            return float(correct(output, y, self.case.loss, self.data.classes).float().mean())
        wanted = y.reshape(len(y), -1)
        if output.numel() != wanted.numel():
            return math.nan
        error = (output.reshape(wanted.shape) - wanted).square().mean()
        return float(1 - error / self.data.y.reshape(len(self.data.y), -1).var(dim=0).mean())

    def _read(self, x: Tensor) -> Tensor:
        return mixed_axes(x) if self.data.mixed else x

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches endlessly, shuffled in each epoch; the last of an epoch may be smaller."""
        data, settings = self.data, self.case.train
        generator = torch.Generator().manual_seed(self.seed)
        order = torch.arange(len(data.x))
        if settings.sorted:
            order = data.y.reshape(len(data.y), -1)[:, 0].argsort(stable=True)
        while True:
            if settings.shuffle and not settings.sorted:
                order = torch.randperm(len(data.x), generator=generator)
            for rows in order.split(self.case.batch):
                yield self._read(data.x[rows]), data.y[rows]
                while settings.retain_batch:
                    yield self._read(data.x[rows]), data.y[rows]

    def _weights(self) -> list[Tensor]:
        return [
            parameter.detach().clone()
            for parameter in self.model.parameters()
            if parameter.ndim > 1
        ]


_FACTORS: dict[str, Any] = {
    "constant": lambda _: 1.0,
    "to_zero": lambda share: max(1 - share, 0.0),
    "step": lambda share: 0.1 ** int(3 * share),
    "cosine": lambda share: (1 + math.cos(math.pi * share)) / 2,
    "warmup": lambda share: min(1.0, share + 1e-3),
    "growing": lambda share: 10 ** (4 * share),
    "late_jump": lambda share: 1000.0 if share > 0.5 else 1.0,
}


def _chunk(case: Case) -> int:
    """Return the number of rows per batch of an evaluation."""
    return max(64, case.batch)


def _value(loss_fn: nn.Module, output: Tensor, wanted: Tensor) -> Tensor:
    """Return the loss.

    Raises:
        ConfigError: The loss does not take such outputs and targets.
    """
    try:
        value: Tensor = loss_fn(output, wanted)
    except (RuntimeError, ValueError, IndexError) as error:
        raise ConfigError(
            f"the loss does not take outputs {list(output.shape)} with targets "
            f"{list(wanted.shape)}: "
            f"{error}"
        ) from error
    return value


@torch.no_grad()
def _update(before: list[Tensor], after: list[Tensor]) -> float:
    """Return the median of norm(update) / norm(weight)."""
    ratios = [
        float((new - old).norm() / old.norm().clamp(min=1e-12))
        for old, new in zip(before, after, strict=True)
    ]
    return sorted(ratios)[len(ratios) // 2]


def _updated(
    model: nn.Sequential, owners: dict[str, Layer], settings: TrainSettings
) -> list[nn.Parameter]:
    """Freeze the configured layers, and return the parameters of the optimizer."""
    names = list(owners)
    left_out = {names[place] for place in settings.omitted}
    frozen = {names[place] for place in settings.frozen}
    for name, layer in owners.items():
        if name in frozen or layer.options.get("frozen"):
            model.get_submodule(name).requires_grad_(False)
        if layer.options.get("in_optimizer") is False:
            left_out.add(name)
    if settings.detached is not None:
        _detach_before(model.get_submodule(names[settings.detached]))
    return [
        parameter
        for name in names
        if name not in left_out
        for parameter in model.get_submodule(name).parameters()
    ]


def _detach_before(module: nn.Module) -> None:
    """Cut the graph before a module."""
    module.register_forward_pre_hook(lambda _, inputs: (inputs[0].detach(),))
