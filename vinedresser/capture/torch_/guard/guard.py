"""The guard of one torch model: looks at the gradients before each update, takes snapshots."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from vinedresser.capture.recording.alarms import gradient_alarm
from vinedresser.capture.recording.loss_jumps import LossJump, LossJumps
from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.snapshot_taker import SnapshotTaker
from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.forward.forward_hooks import is_elsewhere
from vinedresser.capture.torch_.guard.buffer_copies import BufferCopies
from vinedresser.capture.torch_.guard.step_calls import StepCalls, loss_value, without_computed
from vinedresser.capture.torch_.optimizers.schedulers import schedulers_of
from vinedresser.data.delivered import BatchInUse
from vinedresser.data.records import Batch
from vinedresser.frameworks.torch_.codec import TorchCodec, digest
from vinedresser.frameworks.torch_.environment import environment
from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop
from vinedresser.frameworks.torch_.module_calls import Removable, before_calls
from vinedresser.frameworks.torch_.names import Names, unwrapped
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.frameworks.torch_.nonfinite import (
    all_finite,
    gradients_of,
    nonfinite_entries,
    scaler_decides,
)
from vinedresser.frameworks.torch_.optimizer_steps import listen_to_steps
from vinedresser.frameworks.torch_.optimizers import has_closure, with_closure
from vinedresser.frameworks.torch_.passing import passed_on
from vinedresser.frameworks.torch_.random_states import RandomStates
from vinedresser.frameworks.torch_.shards import is_distributed
from vinedresser.snapshots.record import MEANS
from vinedresser.snapshots.trees import Codec

__all__ = ["TorchGuard", "guard_of"]


class _Backwards(LoopListener):
    """Notes backward passes.

    Attributes:
        any: whether any has begun since the first call of the step.
    """

    def __init__(self) -> None:
        self.any = False

    def backward_begins(self, _: Sequence[Any]) -> None:
        """See `LoopListener.backward_begins`."""
        self.any = True


class TorchGuard:
    """Looks at the gradients of a model before each update, and provides snapshots of its steps.

    Until then it keeps the arguments of the model by reference, and copies its buffers and the
    random states at the first forward. The gradients that an optimizer computes with a closure are
    looked at after each call of the closure.

    Args:
        shield: guards all callbacks.
        taker: takes the snapshots.
        root: the model as it is called.
        names: names of the user's model inside it.
    """

    def __init__(
        self,
        shield: Shield,
        taker: SnapshotTaker,
        root: nn.Module,
        names: Names,
        batch: BatchInUse,
    ) -> None:
        self._taker = taker
        self._batch = batch
        self._shield = shield
        self._root = root
        self._model = unwrapped(root)
        self._names = names
        self._calls = StepCalls()
        self._jumps = LossJumps()
        self._loaded = _LoadedBatches(shield)
        self._buffers = BufferCopies(names)
        self._random = RandomStates()
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._stepping: weakref.ref[Optimizer] | None = None
        # A parameter that has a gradient in every step: if it has none, a new step begins.
        self._trained: weakref.ref[Tensor] | None = None
        self._backwards = _Backwards()
        # A closure has computed gradients with the latest calls.
        self._evaluated = False
        # The model was in eval mode at its latest update.
        self._in_eval = False
        guard = shield.guard
        # A hook must not be compiled with the model. Its time is not that of captures for rules.
        skip = torch.compiler.is_compiling
        called = guard("the guard, before a forward", self._called, skip=skip, metered=False)
        before = guard("the guard, before an update", self._before_update, metered=False)
        after = guard("the guard, after an update", self._after_update, metered=False)
        self._hooks = before, after
        self._look_shielded = guard("the guard, before an update", self._look, metered=False)
        # A loss that cannot be read must not keep periodic snapshots from being taken.
        self._compare = guard("the guard, comparing losses", self._jump, metered=False)
        self._take_loss = guard("the guard, at a loss", self._calls.add_loss, skip=skip)
        self._handles: list[Removable] = [before_calls(root, called)]
        # Also at the end of this guard: a model without references must not stay for a listener.
        self._stop_listening = listen_to_loop(self._backwards)
        weakref.finalize(self, self._stop_listening)
        self._ends: list[Callable[[], None]] = []
        self._source = names.prefix.rstrip(".")
        taker.sources[self._source] = self

    @property
    def codec(self) -> Codec:
        """See `SnapshotSource.codec`."""
        return TorchCodec()

    def saw(self, optimizer: Optimizer) -> None:
        """Guard the steps of an optimizer of the model."""
        self._optimizers.append(weakref.ref(optimizer))
        self._ends.append(listen_to_steps(optimizer, *self._hooks))

    def took_loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """Note a value of a loss and the arguments of the loss function."""
        self._take_loss(name, value, arguments)

    def remove(self) -> None:
        """Remove all hooks, and release the training's tensors."""
        while self._handles:
            self._handles.pop().remove()
        while self._ends:
            self._ends.pop()()
        self._stop_listening()
        self._calls.clear()
        self._loaded.end()
        self._taker.sources.pop(self._source, None)

    def contents(self) -> dict[str, Any]:
        """See `SnapshotSource.contents`."""
        parameters = self._names.parameters()
        modules = self._names.modules()
        stepping = None if self._stepping is None else self._stepping()
        alive = [one for one in (reference() for reference in self._optimizers) if one is not None]
        inner = self._inner
        return {
            "parameters": {
                inner(parameter.path): parameter.value.detach() for parameter in parameters
            },
            "buffers": {
                inner(name.partition("/")[2]): value
                for name, value in self._buffers.values().items()
            },
            "in_eval": [inner(path) for path, module in modules if not module.training],
            "calls": [
                {
                    "args": call.args,
                    "kwargs": call.kwargs,
                    "loaded": _storable(call.loaded),
                    "losses": [
                        {
                            "name": name,
                            "value": loss_value(value),
                            "arguments": without_computed(arguments),
                        }
                        for name, value, arguments in call.losses
                    ],
                }
                for call in self._calls.calls
            ],
            "origins": [
                None if call.source is None else call.source.packed() for call in self._calls.calls
            ],
            "gradients": {
                inner(parameter.path): {
                    "sha256": digest(parameter.value.grad),
                    "nonfinite": nonfinite_entries(parameter.value.grad),
                }
                for parameter in parameters
                if parameter.value.grad is not None
            },
            "optimizers": [
                {
                    "type": type(one).__name__,
                    "state": one.state_dict(),
                    "steps_now": one is stepping,
                    "schedulers": [
                        {key: part for key, part in vars(each).items() if key != "optimizer"}
                        for each in schedulers_of(one)
                    ],
                }
                for one in alive
            ],
        }

    def shared(self) -> dict[str, Any]:
        """See `SnapshotSource.shared`."""
        return {"random": self._random.values()}

    def environment(self) -> dict[str, Any]:
        """See `SnapshotSource.environment`."""
        first = next(self._model.parameters(), None)
        return environment(torch.device("cpu") if first is None else first.device)

    def inexact(self) -> list[str]:
        """See `SnapshotSource.inexact`."""
        found = []
        if self._calls.too_many:
            found.append("the step called the model too often, or with too much data, to keep it")
        elif not self._calls.calls:
            found.append("no call of the model was seen in this step")
        if any(call.changed for call in self._calls.calls):
            found.append("an input was changed in place after the model had read it")
        sharded = any(is_distributed(one.value) for one in self._names.parameters())
        if sharded or isinstance(self._root, DistributedDataParallel):
            found.append(MEANS)
        return found

    def _inner(self, path: str) -> str:
        """Return a path without the model's own name; "" for the model itself."""
        if path == self._names.root:
            return ""
        return path.removeprefix(self._names.prefix)

    def _called(self, _: nn.Module, args: Any, kwargs: Any) -> None:
        if not torch.is_grad_enabled() or not (self._model.training or self._in_eval):
            return
        if is_elsewhere() or torch._C._get_tracing_state() is not None:
            return
        if self._calls.calls and (self._evaluated or self._is_new_step()):
            self._calls.clear()
        self._evaluated = False
        if not self._calls.calls:
            self._backwards.any = False
            self._buffers.take()
            self._random.take()
        self._calls.add(args, kwargs, self._loaded.latest, self._batch.origins)
        self._loaded.forget()

    def _is_new_step(self) -> bool:
        """Return whether gradients were cleared since, such as after a step that a scaler skips."""
        # Without a backward pass, the step calls its model several times before one.
        trained = None if self._trained is None or not self._backwards.any else self._trained()
        return trained is not None and trained.grad is None

    def _before_update(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """Look at the gradients; return arguments of the step with a closure that does so."""
        if not has_closure(args, kwargs):
            self._look(optimizer, once=True)
            return None
        return with_closure(args, kwargs, partial(self._looking, optimizer))

    def _looking(self, optimizer: Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure after which the gradients that it has computed are looked at."""

        @functools.wraps(closure)
        def computed(*args: Any, **kwargs: Any) -> Any:
            loss = passed_on(closure, args, kwargs)
            self._look_shielded(optimizer)
            # An optimizer may compute gradients several times in a step.
            self._evaluated = True
            return loss

        return computed

    def _look(self, optimizer: Optimizer, *, once: bool = False) -> None:
        """Take the snapshots that are due before an update.

        Args:
            optimizer: makes the update.
            once: the step computes its loss and gradients once, so that its loss can be compared
                with those of other steps.

        Raises:
            TrainingStopped: the gradients are not finite, and the settings say so.
        """
        self._in_eval = not self._model.training
        self._random.update_begins()
        due = self._taker.due()
        if not (self._taker.guarding or due):
            return
        self._stepping = weakref.ref(optimizer)
        affected = self._affected(optimizer) if self._taker.guarding else []
        if affected and (not self._taker.alarmed or self._intact()):
            sources = (call.source for call in self._calls.calls)
            step = self._taker.step
            self._taker.alarm(gradient_alarm(affected, self._losses(), step, sources))
            return
        # A scaler that decides on the device does not wait for it, so the guard does not either.
        compares = once and self._taker.guarding and not scaler_decides(optimizer)
        jump = self._compare() if compares else None
        if (jump is None or not self._taker.jumped(jump)) and due:
            self._taker.take_periodic()

    def _affected(self, optimizer: Optimizer) -> list[tuple[str, int]]:
        """Return full name and number of entries of each gradient that is not finite."""
        if scaler_decides(optimizer) or all_finite(gradients_of(optimizer)):
            return []
        ours = {id(one) for group in optimizer.param_groups for one in group["params"]}
        found = [
            (parameter.gradient, nonfinite_entries(parameter.value.grad))
            for parameter in self._names.parameters()
            if id(parameter.value) in ours and parameter.value.grad is not None
        ]
        return [(name, number) for name, number in found if number]

    def _intact(self) -> bool:
        """Return whether the weights of all models are finite, so that their gradients tell news.

        What one model has lost spoils those that it trains with, such as those of a GAN.
        """
        guards = (
            source for source in self._taker.sources.values() if isinstance(source, TorchGuard)
        )
        return all(all_finite(guard._model.parameters()) for guard in guards)

    def _jump(self) -> LossJump | None:
        """Compare the losses of the step with those of the steps before."""
        return self._jumps.next(self._losses())

    def _losses(self) -> list[tuple[str, float]]:
        values = (loss for call in self._calls.calls for loss in call.losses)
        return [
            (f"losses/{name}{place}", float(tensor.detach()))
            for name, value, _ in values
            for place, tensor in leaves(value)
            if tensor.numel() == 1 and not tensor.is_complex() and _is_whole(tensor)
        ]

    def _after_update(self, optimizer: Optimizer, *_: Any) -> None:
        self._calls.clear()
        # The next update may be that of another model.
        self._stepping = None
        if self._trained is None or self._trained() is None:
            used = (one for group in optimizer.param_groups for one in group["params"])
            first = next((one for one in used if one.grad is not None), None)
            self._trained = None if first is None else weakref.ref(first)


def _is_whole(tensor: Tensor) -> bool:
    """Return whether this rank has all of a tensor; to read others, it would wait for its peers."""
    return all(one.is_replicate() for one in getattr(tensor, "placements", ()))


def _storable(loaded: Any) -> Any:
    """Return a loaded batch without what only a report needs: errors of records left out of it."""
    return loaded._replace(damaged=[]) if isinstance(loaded, Batch) else loaded


def guard_of(
    session: Session, root: nn.Module, names: Names, handles: list[Removable]
) -> TorchGuard | None:
    """Return the guard of a model; None if nobody wants snapshots.

    Args:
        session: session of the hook.
        root: the model as it is called.
        names: names of the user's model inside it.
        handles: receives the guard, which can be removed like a hook.
    """
    if session.snapshots is None:
        return None
    guard = TorchGuard(session.shield, session.snapshots, root, names, session.recorder.batch)
    handles.append(guard)
    return guard


class _LoadedBatches(LoopListener):
    """Keeps the latest batch that a data loader returned in this thread.

    Args:
        shield: guards the look at a batch.

    Attributes:
        latest: the batch; None before the first, or after `forget`.
    """

    def __init__(self, shield: Shield) -> None:
        self.latest: Any = None
        self._thread = threading.get_ident()
        self._end = listen_to_loop(self, shield.guard)

    def forget(self) -> None:
        """Release the batch."""
        self.latest = None

    def end(self) -> None:
        """Stop to listen."""
        self.forget()
        self._end()

    def batch_loaded(self, batch: Any) -> None:
        """Keep a batch, unless another thread evaluates beside the training."""
        if threading.get_ident() == self._thread:
            self.latest = batch
