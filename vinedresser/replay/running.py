"""Running a recorded step once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from vinedresser.errors import ConfigError
from vinedresser.frameworks.torch_.codec import digest
from vinedresser.frameworks.torch_.names import Names, unwrapped
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.frameworks.torch_.nonfinite import nonfinite_entries
from vinedresser.frameworks.torch_.optimizer_steps import listen_to_all_steps
from vinedresser.frameworks.torch_.optimizers import has_closure, with_closure
from vinedresser.frameworks.torch_.step_inputs import with_output
from vinedresser.replay.batch import Batch, batch_size, selected
from vinedresser.replay.factory import NEEDED, Parts
from vinedresser.replay.recorded import RecordedStep
from vinedresser.replay.restoring import restore
from vinedresser.replay.results import Outcome
from vinedresser.replay.samples import numbered, with_samples

__all__ = ["Replay", "UpdateReached"]


class UpdateReached(BaseException):
    """The step function is about to update the weights; its gradients are complete.

    Args:
        loss: what the closure of the optimizer returned; None without a closure.
    """

    def __init__(self, loss: Any = None) -> None:
        super().__init__()
        self.loss = loss


@dataclass
class Replay:
    """Runs a recorded step, each time from its recorded state.

    Attributes:
        parts: result of the factory.
        whose: name of the factory, for messages.
        eager: whether compiled parts are run without their compiled code.
        runs: number of runs so far.
    """

    parts: Parts
    step: RecordedStep
    whose: str
    eager: bool = False
    runs: int = field(default=0, init=False)
    # Whether the step function leaves `backward()` to the replay; None until it has run once.
    _only_loss: bool | None = field(default=None, init=False)

    @property
    def samples(self) -> list[tuple[int, int]]:
        """Number of the batch and row of each sample; [] if they cannot be told apart."""
        return numbered(batch_size(batch) for batch in self.step.batches)

    def run(
        self,
        samples: Sequence[tuple[int, int]] | None = None,
        within: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> Outcome:
        """Run the step.

        Args:
            samples: the samples to run it with, some of `samples`; None: all, as recorded.
            within: makes the context for the computations.

        Raises:
            ConfigError: the factory builds something else, or the step computes no gradient.
        """
        self.runs += 1
        restore(self.parts, self.step, self.whose)
        batches = self.step.batches
        if samples is not None:
            batches = with_samples(batches, samples, selected)
        with within():
            losses = self.take(batches)
        return self.outcome(losses)

    def take(self, batches: Sequence[Batch]) -> list[Tensor]:
        """Run the step with batches, in the present state, without its update; return the losses.

        Raises:
            ConfigError: the factory builds something else.
        """
        losses: list[Tensor] = []
        end = listen_to_all_steps(before=_stop)
        try:
            for batch in batches:
                loss = self.run_batch(batch)
                losses += [one for _, one in leaves(loss)]
        finally:
            end()
        return losses

    def run_batch(self, batch: Batch) -> Any:
        """Run the step with one batch, in the present state; return its loss.

        Raises:
            ConfigError: the factory builds something else.
        """
        run = self.parts.step or self._plain_step
        # Gradients of an earlier batch say nothing about this one.
        cleared = not self._has_gradients()
        loss: Any = None
        try:
            with torch.compiler.set_stance("force_eager") if self.eager else nullcontext():
                loss = run(batch)
            if isinstance(loss, Tensor) and loss.requires_grad:
                if self._only_loss is None and cleared:
                    self._only_loss = not self._has_gradients()
                if self._only_loss:
                    loss.backward()
        except UpdateReached as reached:
            loss = reached.loss
        return loss.detach() if isinstance(loss, Tensor) else None

    def _plain_step(self, batch: Batch) -> Tensor:
        """Run the model and the loss module."""
        model = next(iter(self.parts.models.values()))
        output = model(*batch.args, **batch.kwargs)
        if self.parts.loss is not None:
            output = self.parts.loss(*self._loss_arguments(batch, output))
        if not isinstance(output, Tensor) or output.numel() != 1:
            raise ConfigError(f"{self.whose}: it returned no loss; {NEEDED}")
        output.backward()
        return output

    def _loss_arguments(self, batch: Batch, output: Any) -> list[Any]:
        arguments = with_output(batch.loss_args, output)
        if arguments is None:
            raise ConfigError(
                f"{self.whose}: what the loss compared is not known: return a step function "
                "instead of the loss module"
            )
        return arguments

    def _has_gradients(self) -> bool:
        return any(
            parameter.grad is not None
            for each in self.parts.models.values()
            for parameter in each.parameters()
        )

    def outcome(self, losses: list[Tensor]) -> Outcome:
        """Return what the step computed: the losses, and the present gradients.

        Raises:
            ConfigError: there is no gradient.
        """
        found = {
            (name, parameter.path): parameter.value.grad
            for name, model in self.parts.models.items()
            for parameter in Names(unwrapped(model)).parameters()
            if parameter.value.grad is not None
        }
        if not found:
            raise ConfigError(f"{self.whose}: the step computed no gradient; {NEEDED}")
        counts = {key: nonfinite_entries(one) for key, one in found.items()}
        return Outcome(
            losses,
            {key: digest(one) for key, one in found.items()},
            {key: number for key, number in counts.items() if number},
        )


def _stop(_: Optimizer, args: Any, kwargs: Any) -> Any:
    """End a step before its update; with a closure, after it has computed the gradients."""
    if not has_closure(args, kwargs):
        raise UpdateReached

    def stopping(closure: Callable[[], Any]) -> Callable[[], Any]:
        def computed() -> Any:
            raise UpdateReached(closure())

        return computed

    return with_closure(args, kwargs, stopping)
