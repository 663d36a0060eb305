"""Watching the first steps of an unchanged script."""

from __future__ import annotations

import copy
import functools
import hashlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader

from vinedresser.capture.fetching import listen
from vinedresser.capture.recording.stopping import TrainingStopped
from vinedresser.capture.torch_.guard.guard import digest
from vinedresser.capture.torch_.guard.random_states import current_states
from vinedresser.capture.torch_.losses.backward_listeners import listen_to_backwards
from vinedresser.capture.torch_.nesting import leaves
from vinedresser.capture.torch_.optimizers.optimizer_steps import has_closure
from vinedresser.preflight.observed import Compared, FirstStep, Observed, SeenStep
from vinedresser.preflight.recognizing import recognized
from vinedresser.preflight.recorder import Recorder

__all__ = ["Watcher"]

# Loss functions whose arguments are looked at.
_LOSSES = frozenset(
    (
        *("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"),
        *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
    )
)
# Calls of the models without a step, after which the training is left alone.
_MOST_CALLS = 2000
_MOST_MODELS = 8


class Watcher:
    """Watches until the limit is reached, then calls `done` once, between two steps.

    Args:
        most: maximum number of steps.
        seconds: maximum CPU seconds from the first call of a model.
        done: receives what was seen; ends the script.
    """

    def __init__(self, most: int, seconds: float, done: Callable[[Observed], None]) -> None:
        self.seen = Observed()
        self._most, self._seconds, self._done = most, seconds, done
        self._recorder = Recorder()
        self._thread = threading.get_ident()
        self._inside = self._ended = False
        self._known: list[Optimizer] = []
        self._memo: dict[int, Any] = {}
        self._copies: list[nn.Module] = []
        self._optimizer_copies: dict[int, Optimizer] = {}
        self._began = self._last = 0.0
        self._calls = 0
        self._clear()
        self._left: dict[tuple[int, str], Tensor] = {}
        self._uncleared = False
        self._original = nn.Module.__call__

    def start(self) -> None:
        """Begin to watch."""
        original = self._original

        @functools.wraps(original)
        def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return self._called(module, args, kwargs)

        # Special methods are not looked up on the instance: a listener would not see them.
        iterate = DataLoader.__iter__

        @functools.wraps(iterate)
        def iterated(loader: DataLoader[Any]) -> Any:
            self._iterated(loader)
            return iterate(loader)

        nn.Module.__call__ = called  # type: ignore[method-assign]
        listen(Optimizer, "add_param_group", self._made)
        DataLoader.__iter__ = iterated  # type: ignore[method-assign]
        listen(torch.amp.GradScaler, "scale", self._scaled)
        listen_to_backwards(self._backward)
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        self._recorder.__enter__()  # type: ignore[no-untyped-call]

    def end(self) -> None:
        """Stop to watch, and report what was seen, unless that has happened."""
        if self._ended:
            return
        self._ended = True
        self._recorder.on = False
        self.seen.unused = self._backwards
        self.seen.moved = not self.seen.steps and self._has_moved()
        nn.Module.__call__ = self._original  # type: ignore[method-assign]
        self._done(self.seen)

    def _stop(self) -> None:
        """End the script, such that its ``finally`` blocks run."""
        self.seen.cut = True
        self.end()
        raise TrainingStopped(0)

    def _clear(self) -> None:
        """Forget what belongs to the current step."""
        self._losses: list[float] = []
        self._compared: list[Compared] = []
        self._hash = hashlib.sha256()
        self._program: tuple[Any, Tensor] | None = None
        self._backwards = 0
        self._recorder.clear()

    def _made(self, optimizer: Optimizer) -> None:
        if not any(one is optimizer for one in self._known):
            self._known.append(optimizer)

    def _iterated(self, loader: DataLoader[Any]) -> None:
        if not any(one is loader for one in self.seen.loaders):
            self.seen.loaders.append(loader)

    def _scaled(self, _: Any) -> None:
        self.seen.scaled = True

    def _called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        watched = not (self._ended or self._inside) and self._is_training_call(module)
        if not watched:
            return self._original(module, *args, **kwargs)
        self._calls += 1
        if self._calls >= _MOST_CALLS or self._time_over():
            self._stop()
        number = self._number(module)
        self.seen.calls[number] = self.seen.calls.get(number, 0) + 1
        if not module.training:
            self.seen.modes[number] = self.seen.modes.get(number, 0) + 1
        for name, tensor in leaves((args, kwargs)):
            if not tensor.requires_grad:
                self._hash.update(f"{name}{digest(tensor)}".encode())
        random = current_states()
        self._inside, self._recorder.on = True, False
        try:
            output = self._original(module, *args, **kwargs)
        finally:
            self._inside, self._recorder.on = False, True
        self._recorder.called(number, module, (args, kwargs), output, random)
        return output

    def _is_training_call(self, module: nn.Module) -> bool:
        if not torch.is_grad_enabled() or threading.get_ident() != self._thread:
            return False
        if torch._C._current_graph_task_id() != -1:
            return False
        own = set(map(id, module.parameters()))
        return bool(own) and any(
            id(one) in own
            for optimizer in self._known
            for group in optimizer.param_groups
            for one in group["params"]
        )

    def _time_over(self) -> bool:
        return bool(self._began) and time.process_time() - self._began > self._seconds

    def _number(self, module: nn.Module) -> int:
        """Return the number of a model; copy it, and its optimizers, when it is seen first."""
        for number, one in enumerate(self.seen.models):
            if one is module:
                return number
        if not self._began:
            self._began = self._last = time.process_time()
        self.seen.models.append(module)
        for name, value in module.named_parameters():
            if value.requires_grad:
                self.seen.untouched[len(self.seen.models) - 1, name] = "none"
        if not self.seen.steps and len(self.seen.models) <= _MOST_MODELS:
            try:
                self._copies.append(copy.deepcopy(module, self._memo))
                for optimizer in self._known:
                    if id(optimizer) not in self._optimizer_copies:
                        copied = copy.deepcopy(optimizer, self._memo)
                        self._optimizer_copies[id(optimizer)] = copied
            except (TypeError, ValueError, RuntimeError, AttributeError) as error:
                self.seen.why = f"the model or its optimizer cannot be copied: {error}"
        return len(self.seen.models) - 1

    def _backward(self, losses: Sequence[Any]) -> None:
        if self._ended or threading.get_ident() != self._thread or not self.seen.models:
            return
        if torch._C._current_graph_task_id() != -1:
            return
        self._recorder.on = False
        self._look_for_left_gradients()
        self._backwards += 1
        for loss in losses:
            if isinstance(loss, Tensor) and loss.numel() == 1:
                value = float(loss.detach())
                self._losses.append(value)
                if not math.isfinite(value) and not self.seen.nonfinite:
                    self.seen.nonfinite = f"the loss is {value} at step {len(self.seen.steps)}"
                if self._program is None:
                    self._take(loss)
        self._compared += [
            Compared(
                name,
                args[0].detach(),
                args[1].detach(),
                plain,
                value.detach(),
                is_loss,
                type(args[0].grad_fn).__name__,
            )
            for name, args, plain, value, is_loss in self._comparisons(losses)
        ]
        self._recognize(losses)

    def _recognize(self, losses: Sequence[Any]) -> None:
        """Look for the function of a loss that is computed by hand."""
        alone = len(losses) == 1 and isinstance(losses[0], Tensor) and losses[0].numel() == 1
        if alone and not self._compared:
            found = recognized(losses[0], self._recorder.computed(), self._recorder.given())
            self._compared += [] if found is None else [found]

    def _take(self, loss: Tensor) -> None:
        """Keep the computation of the first loss of the first step."""
        if self.seen.steps or self.seen.first is not None:
            return
        if self._recorder.unsupported:
            self.seen.why = self._recorder.unsupported
        elif len(self._copies) == len(self.seen.models):
            program = self._recorder.program(loss)
            if program is None:
                self.seen.why = "the loss is not computed from a call of a module"
            else:
                self._program = program, loss.detach().clone()

    def _comparisons(self, losses: Sequence[Any]) -> list[Any]:
        found: list[Any] = []
        for name, args, kwargs, value in self._recorder.compared:
            given = [*args, *kwargs.values()]
            tensors = [one for one in given if isinstance(one, Tensor)]
            if name in _LOSSES and len(args) >= 2 and len(tensors) == 2 and len(found) < 8:
                settings = [one for one in given if not isinstance(one, Tensor)]
                plain = all(one in _DEFAULTS for one in settings)
                found.append((name, args, plain, value, any(_same(value, one) for one in losses)))
        return found

    def _look_for_left_gradients(self) -> None:
        """Look whether the gradients of the step before are still there."""
        if self._left and not self._backwards:
            values = dict(self._parameters())
            self._uncleared = all(
                values[key].grad is not None and torch.equal(values[key].grad, one)
                for key, one in self._left.items()
                if key in values
            )

    def _parameters(self) -> list[tuple[tuple[int, str], Any]]:
        return [
            ((number, name), value)
            for number, model in enumerate(self.seen.models)
            for name, value in model.named_parameters()
        ]

    def _has_moved(self) -> bool:
        """Return whether parameters are not those at the first call of their models."""
        if len(self._copies) < len(self.seen.models):
            return True
        pairs = zip(self.seen.models, self._copies, strict=True)
        return any(
            not torch.equal(now, before)
            for one, copied in pairs
            for now, before in zip(one.parameters(), copied.parameters(), strict=True)
        )

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not self._ended and not has_closure(args, kwargs):
            self._consume(optimizer, closure=False)

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._ended or not self.seen.models:
            return
        if has_closure(args, kwargs):
            self._consume(optimizer, closure=True)
        if not any(one is optimizer for one in self.seen.optimizers):
            self.seen.optimizers.append(optimizer)
        if self.seen.optimizers[0] is not optimizer:
            return
        now = time.process_time()
        rates = [float(group.get("lr", math.nan)) for group in optimizer.param_groups]
        self.seen.steps.append(
            SeenStep(
                self._losses,
                rates,
                self._hash.hexdigest(),
                self._compared,
                self._uncleared,
                now - self._last,
            )
        )
        self._last = now
        self._clear()
        self._keep_gradients()
        if len(self.seen.steps) >= self._most or self._time_over():
            self._stop()

    def _keep_gradients(self) -> None:
        """Keep the first gradients that are not zero, to see whether they are cleared."""
        self._uncleared = False
        found = ((key, value.grad) for key, value in self._parameters() if value.grad is not None)
        self._left = {}
        for key, gradient in found:
            if not gradient.is_sparse and bool(gradient.any()):
                self._left[key] = gradient.detach().clone()
                break

    def _consume(self, optimizer: Optimizer, *, closure: bool) -> None:
        """Look at the gradients that an optimizer uses."""
        seen = self.seen
        for key, state in list(seen.untouched.items()):
            value = seen.models[key[0]].get_parameter(key[1])
            if value.grad is None:
                continue
            if value.grad.is_sparse or bool(value.grad.any()):
                del seen.untouched[key]
            elif state == "none":
                seen.untouched[key] = "zero"
        if seen.first is None and self._program is not None and not seen.steps:
            copied = self._optimizer_copies.get(id(optimizer))
            if self._backwards != 1:
                seen.why = f"the first step has {self._backwards} backward passes"
            elif copied is None:
                seen.why = "the optimizer was made after the first call of the model"
            else:
                program, loss = self._program
                gradients = {
                    key: value.grad.detach().clone()
                    for key, value in self._parameters()
                    if value.grad is not None
                }
                seen.first = FirstStep(program, loss, self._copies, copied, gradients, closure)


_DEFAULTS: tuple[Any, ...] = (None, -100, "mean", 0.0, 1.0)


def _same(value: Tensor, loss: Any) -> bool:
    """Return whether a loss is a value, perhaps with a penalty of 0 added."""
    return isinstance(loss, Tensor) and bool(torch.equal(value.detach(), loss.detach()))
