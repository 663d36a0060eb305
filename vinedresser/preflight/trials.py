"""Running the first step again, on copies: as it was, and many times on its batch."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vinedresser.preflight.observed import FirstStep, Observed
from vinedresser.preflight.program import Transform

__all__ = ["FAILURES", "Fit", "NotRepeatable", "Trials"]

# Relative difference of gradients that the order of additions explains.
_ROUNDING = 1e-4
# What copies of a user's model may raise.
FAILURES = (RuntimeError, ValueError, TypeError, AttributeError, KeyError, IndexError)


class NotRepeatable(Exception):
    """The first step cannot be run again; the message says why."""


@dataclass(frozen=True)
class Fit:
    """A training on one batch.

    Attributes:
        losses: the loss of each step, until it is not finite.
    """

    losses: list[float]
    models: list[nn.Module]

    @property
    def finite(self) -> bool:
        """Whether all losses are finite."""
        return all(map(math.isfinite, self.losses))

    @property
    def start(self) -> float:
        """The first loss."""
        return self.losses[0]

    @property
    def end(self) -> float:
        """Mean of the last losses."""
        return fmean(self.losses[-max(1, len(self.losses) // 20) :])


class Trials:
    """Runs of the first step of a training, which leave the training as it is.

    Args:
        deadline: value of `time.process_time` at which all runs end.
    """

    def __init__(self, seen: Observed, deadline: float) -> None:
        self._seen, self._deadline = seen, deadline
        self._clip: float | None = None
        self._fault: str | None = None
        self._known: dict[str, Fit] = {}

    @property
    def first(self) -> FirstStep:
        """The first step, once it is known that it can be run again.

        Raises:
            NotRepeatable: it cannot.
        """
        if self._fault is None:
            try:
                with torch.enable_grad():
                    self._fault = self._verified()
            except FAILURES as error:
                self._fault = f"the first step cannot be run again: {error}".splitlines()[0]
        if self._fault or self._seen.first is None:
            raise NotRepeatable(self._fault)
        return self._seen.first

    def copies(self) -> tuple[list[nn.Module], Optimizer]:
        """Return the models before the first step, and their optimizer at its latest rate.

        Raises:
            NotRepeatable: the first step cannot be run again.
        """
        models, optimizer = copy.deepcopy((self.first.models, self.first.optimizer))
        if len(optimizer.param_groups) == len(self._seen.steps[-1].rates):
            for group, rate in zip(optimizer.param_groups, self._seen.steps[-1].rates, strict=True):
                group["lr"] = rate
        return models, optimizer

    def fit(self, name: str, steps: int, seconds: float, rate: float | None = None) -> Fit:
        """Train a copy on the batch of the first step.

        Args:
            name: name of the run: the same is run once.
            seconds: CPU seconds, at most.
            rate: learning rate of an Adam; None: the optimizer of the script.

        Raises:
            NotRepeatable: the first step cannot be run again, or there is no time left.
        """
        if name not in self._known:
            models, optimizer = self.copies()
            if rate is not None:
                values = [parameter for model in models for parameter in model.parameters()]
                optimizer = torch.optim.Adam(
                    [value for value in values if value.requires_grad], lr=rate
                )
            losses = self.train(models, optimizer, steps, seconds)
            self._known[name] = Fit(losses, models)
        return self._known[name]

    def train(  # noqa: C901 (one loop, as a training is)
        self,
        models: list[nn.Module],
        optimizer: Optimizer,
        steps: int,
        seconds: float,
        *,
        rates: Iterator[float] | None = None,
        transform: Transform | None = None,
    ) -> list[float]:
        """Train models on the batch of the first step; return the losses.

        Args:
            models: copies of the models.
            seconds: CPU seconds, at most.
            rates: learning rate of each step; None: those of the optimizer.
            transform: changes the arguments of each call.

        Raises:
            NotRepeatable: there is no time left.
        """
        program, losses = self.first.program, []
        end = min(self._deadline, time.process_time() + seconds)
        parameters = [parameter for model in models for parameter in model.parameters()]

        def backward() -> Tensor:
            for parameter in parameters:
                parameter.grad = None
            loss = program.run(models, transform=transform)
            loss.backward()
            return loss

        for _ in range(steps):
            if time.process_time() > end:
                break
            if rates is not None:
                rate = next(rates)
                for group in optimizer.param_groups:
                    group["lr"] = rate
            if self.first.closure:
                loss = torch.as_tensor(optimizer.step(backward))  # type: ignore[arg-type]
            else:
                loss = backward()
                if self._clip is not None:
                    nn.utils.clip_grad_norm_(parameters, self._clip)
                optimizer.step()
            losses.append(float(loss.detach()))
            if not math.isfinite(losses[-1]):
                break
        if not losses:
            raise NotRepeatable("no time left")
        return losses

    def _verified(self) -> str:
        """Return why the first step cannot be run again; "" if it gives the same."""
        seen, first = self._seen, self._seen.first
        if first is None:
            return seen.why
        if len(seen.optimizers) > 1:
            return "several optimizers step"
        if seen.scaled:
            return "a gradient scaler is used"
        models, _ = copy.deepcopy((first.models, first.optimizer))
        loss = first.program.run(models, as_recorded=True)
        if not torch.equal(loss.detach(), first.loss):
            return "the first step computes another loss when it is run again"
        loss.backward()
        found = {
            (number, name): value.grad
            for number, model in enumerate(models)
            for name, value in model.named_parameters()
            if value.grad is not None
        }
        return self._same_gradients(found, first.gradients)

    def _same_gradients(
        self, found: dict[tuple[int, str], Tensor], wanted: dict[tuple[int, str], Tensor]
    ) -> str:
        """Compare gradients; a common factor below 1 is a clipped norm."""
        other = "the script changes gradients before the update"
        if found.keys() != wanted.keys():
            return other
        if any(one.is_sparse for one in found.values()):
            return "sparse gradients"
        ours = torch.cat([one.reshape(-1) for one in found.values()]).double()
        theirs = torch.cat([one.reshape(-1) for one in wanted.values()]).double()
        norm, received = float(ours.norm()), float(theirs.norm())
        if not math.isfinite(norm) or torch.equal(ours, theirs):
            return ""
        factor = received / norm if norm else 0.0
        if factor > 1 + _ROUNDING or float((ours * factor - theirs).norm()) > _ROUNDING * received:
            return other
        if factor < 1 - _ROUNDING:
            self._clip = received
        return ""
