"""Watching the first steps of an unchanged script."""

from __future__ import annotations

import copy
import functools
import hashlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from vinedresser.capture.attach.torch_tracebacks import without_capture
from vinedresser.capture.attach.tracebacks import PlainTracebacks
from vinedresser.capture.recording.stopping import TrainingStopped
from vinedresser.capture.shield import Shield
from vinedresser.frameworks.torch_.codec import digest
from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop
from vinedresser.frameworks.torch_.losses.model_outputs import mark_outputs
from vinedresser.frameworks.torch_.modes import WithoutModes
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.frameworks.torch_.optimizers import has_closure
from vinedresser.frameworks.torch_.passing import passed_on
from vinedresser.frameworks.torch_.random_states import current_states
from vinedresser.preflight.loss_function import LossFunction, function_of
from vinedresser.preflight.observed import LEAST_SAMPLES, FirstStep, Observed, SeenStep
from vinedresser.preflight.program import Program
from vinedresser.preflight.recorder import CONTINUES, Recorder
from vinedresser.preflight.settings import PreflightSettings

_P = ParamSpec("_P")
_R = TypeVar("_R")

# Calls of the models without a step, after which the training is left alone.
_MOST_CALLS = 2000
_MOST_MODELS = 8


class Watcher(LoopListener):
    """Watches until the limit is reached, then calls `done` once, between two steps.

    Args:
        settings: limits of the steps, and of the CPU seconds from the first call of a model.
        done: receives what was seen; ends the script.
    """

    def __init__(self, settings: PreflightSettings, done: Callable[[Observed], None]) -> None:
        self.seen = Observed()
        self._settings, self._done = settings, done
        self._shield = Shield()
        self._recorder = Recorder(self._shield)
        self._thread = threading.get_ident()
        self._inside = self._ended = False
        self._known: list[Optimizer] = []
        self._memo: dict[int, Any] = {}
        self._copies: list[nn.Module] = []
        self._optimizer_copies: dict[int, Optimizer] = {}
        self._began = self._last = 0.0
        self._calls = 0
        self._clear()
        self._original = nn.Module.__call__

    def start(self) -> None:
        """Begin to watch."""
        original = self._original
        begins = self._guarded("a call of a model", self._call_begins)
        ended = self._guarded("a call of a model", self._call_ended)

        @functools.wraps(original)
        def called(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            begun = begins(module, args, kwargs)
            if begun is None:
                return passed_on(original, (module, *args), kwargs)
            self._inside, self._recorder.on = True, False
            try:
                output = passed_on(original, (module, *args), kwargs)
            finally:
                self._inside, self._recorder.on = False, not self.seen.steps
            ended(begun, (args, kwargs), output)
            return output

        # Special methods are not looked up on the instance: a listener would not see them.
        iterate, iterates = DataLoader.__iter__, self._guarded("a data loader", self._iterated)

        @functools.wraps(iterate)
        def iterated(loader: DataLoader[Any]) -> Any:
            iterates(loader)
            return passed_on(iterate, (loader,), {})

        nn.Module.__call__ = called  # type: ignore[method-assign]
        DataLoader.__iter__ = iterated  # type: ignore[method-assign]
        listen_to_loop(self, self._guarded)
        self._recorder.__enter__()  # type: ignore[no-untyped-call]
        PlainTracebacks(self._shield, without_capture)

    def _guarded(self, doing: str, callback: Callable[_P, _R]) -> Callable[_P, _R | None]:
        """Return a callback whose errors stay out of the script."""
        return self._shield.guard(f"watching {doing}", callback, then=CONTINUES)

    def end(self) -> None:
        """Stop to watch, and report what was seen, unless that has happened."""
        if self._ended:
            return
        self._ended = True
        self._recorder.on = False
        self.seen.failed = next(iter(self._shield.problems), "")
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
        self._hash = hashlib.sha256()
        self._first: tuple[Program, Tensor, LossFunction | None] | None = None
        self._backwards = 0
        self._recorder.clear()

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """See `LoopListener.optimizer_made`."""
        if not any(one is optimizer for one in self._known):
            self._known.append(optimizer)

    def _iterated(self, loader: DataLoader[Any]) -> None:
        if not any(one is loader for one in self.seen.loaders):
            self.seen.loaders.append(loader)

    def loss_scaled(self, _: Any) -> None:
        """See `LoopListener.loss_scaled`."""
        self.seen.scaled = True

    def _call_begins(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[int, nn.Module, dict[str, Any]] | None:
        """Return number, model and states of the random generators; None if it is not watched."""
        if self._ended or self._inside or not self._is_training_call(module):
            return None
        self._calls += 1
        if self._calls >= _MOST_CALLS or self._time_over():
            self._stop()
        number = self._number(module)
        given = list(leaves((args, kwargs)))
        for name, tensor in given:
            if not tensor.requires_grad:
                self._hash.update(f"{name}{digest(tensor)}".encode())
        if len(given) == 1 and sum(map(len, self.seen.samples)) < LEAST_SAMPLES:
            self.seen.samples += [one.detach().clone() for _, one in given if one.dim()]
        return number, module, {} if self.seen.steps else current_states()

    def _call_ended(
        self,
        begun: tuple[int, nn.Module, dict[str, Any]],
        given: tuple[tuple[Any, ...], dict[str, Any]],
        output: Any,
    ) -> None:
        number, module, random = begun
        if self.seen.steps:
            return
        with WithoutModes():
            mark_outputs(output)
        self._recorder.called(number, module, given, output, random)

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
        return bool(self._began) and time.process_time() - self._began > self._settings.watching

    def _number(self, module: nn.Module) -> int:
        """Return the number of a model; copy it, and its optimizers, when it is seen first."""
        for number, one in enumerate(self.seen.models):
            if one is module:
                return number
        if not self._began:
            self._began = self._last = time.process_time()
        self.seen.models.append(module)
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

    def backward_begins(self, losses: Sequence[Any]) -> None:
        """See `LoopListener.backward_begins`."""
        if self._ended or threading.get_ident() != self._thread or not self.seen.models:
            return
        self._recorder.on = False
        self._backwards += 1
        scalars = [loss for loss in losses if isinstance(loss, Tensor) and loss.numel() == 1]
        if scalars and self._first is None and not self.seen.steps:
            self._take(scalars[0])

    def _take(self, loss: Tensor) -> None:
        """Keep the computation of the first loss of the first step."""
        if self._recorder.unsupported:
            self.seen.why = self._recorder.unsupported
        elif len(self._copies) == len(self.seen.models):
            program = self._recorder.program(loss)
            if program is None:
                self.seen.why = "the loss is not computed from a call of a module"
            else:
                self._first = program, loss.detach().clone(), function_of(loss)

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

    def step_begins(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """See `LoopListener.step_begins`."""
        if not self._ended and not has_closure(args, kwargs):
            self._consume(optimizer, closure=False)

    def step_ended(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """See `LoopListener.step_ended`."""
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
        self.seen.steps.append(SeenStep(rates, self._hash.hexdigest(), now - self._last))
        self._last = now
        self._clear()
        enough = self._settings.enough(self.seen.rows)
        if len(self.seen.steps) >= enough or self._time_over():
            self._stop()

    def _consume(self, optimizer: Optimizer, *, closure: bool) -> None:
        """Keep the gradients that an optimizer uses in the first step."""
        seen = self.seen
        if self._first is None or seen.steps or seen.first is not None:
            return
        copied = self._optimizer_copies.get(id(optimizer))
        if self._backwards != 1:
            seen.why = f"the first step has {self._backwards} backward passes"
        elif copied is None:
            seen.why = "the optimizer was made after the first call of the model"
        else:
            gradients = {
                (number, name): value.grad.detach().clone()
                for number, model in enumerate(seen.models)
                for name, value in model.named_parameters()
                if value.grad is not None
            }
            seen.first = FirstStep(*self._first, self._copies, copied, gradients, closure)
