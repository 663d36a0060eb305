"""What happens in the training loops of a process, for all who want to know."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from vinedresser.frameworks.methods import listen, wrap
from vinedresser.frameworks.torch_.optimizer_steps import Arguments, listen_to_all_steps
from vinedresser.frameworks.torch_.passing import passed_on

__all__ = ["LoopListener", "listen_to_loop"]

_AUTOGRAD: Any = torch.autograd
_COMPILER = "torch._dynamo"

_Listener = Callable[..., Any]
_Guard = Callable[[str, _Listener], _Listener]


class LoopListener:
    """The events of training loops; a subclass overrides those that it wants to know.

    An event that no listener overrides is not watched and costs nothing. What a listener raises
    reaches the script.
    """

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Note an optimizer that is about to receive a group of parameters.

        Every optimizer receives the first one in its constructor.
        """

    def scheduler_made(self, scheduler: LRScheduler) -> None:
        """Note a scheduler that counts its steps, at the end of its constructor."""

    def batch_awaited(self, iterator: Any) -> None:
        """Note the iterator of a data loader that is about to return a batch."""

    def batch_loaded(self, batch: Any) -> tuple[Any] | None:
        """Return what a data loader shall return instead of a batch, in a tuple; None: the same."""

    def module_called(self, module: nn.Module) -> None:
        """Note a module that is about to be called, whether it is part of another one or not.

        Calls in a backward pass (by checkpointing), while torch traces, and by a compiler that only
        accesses the module are not noted.
        """

    def loss_scaled(self, scaler: GradScaler) -> None:
        """Note a scaler that is about to scale losses."""

    def backward_begins(self, losses: Sequence[Any]) -> None:
        """Note the tensors of a `torch.autograd.backward` or `Tensor.backward` that begins.

        Nested backward passes, such as those of checkpointing, are not noted.
        """

    def gradients_cleared(self, module: nn.Module) -> None:
        """Note a module whose gradients are about to be cleared by `Module.zero_grad`."""

    def state_taken(self, module: nn.Module) -> None:
        """Note a module whose `state_dict` is about to be called, or that of one around it."""

    def weights_loaded(self, module: nn.Module, state: Any) -> None:
        """Note a module and the state that is about to be loaded into it."""

    def step_begins(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Arguments | None:
        """Note a step that an optimizer is about to take; see `listen_to_all_steps`.

        Returns:
            Other arguments for the step; None for the same.
        """

    def step_ended(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Note the end of an optimizer's step."""

    def scaler_step_begins(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        """Note a scaler that is asked for an optimizer's step, which it may skip."""

    def scaler_step_ended(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        """Note the end of a scaler's step, which it may have skipped."""


def listen_to_loop(
    listener: LoopListener,
    guard: _Guard | None = None,
    *,
    only: Iterable[Callable[..., Any]] | None = None,
) -> Callable[[], None]:
    """Call the methods of a listener at the events of all training loops of this process.

    Several listeners are called in the order in which they began to listen. They may begin and end
    at any time, also within an event.

    Args:
        listener: what is called.
        guard: wraps a method so that its errors do not reach the training; receives a description
            of what the method does, and the method. None: they do reach it.
        only: the events, as methods of `LoopListener`; None: all that the listener overrides.

    Returns:
        A function that ends it.
    """
    kind = type(listener)
    wanted = {one.__name__ for one in only} if only is not None else None
    ends = []
    for name, (doing, event) in _EVENTS.items():
        overridden = getattr(kind, name) is not getattr(LoopListener, name)
        if overridden if wanted is None else name in wanted:
            method = getattr(listener, name)
            ends.append(event(method if guard is None else guard(doing, method)))

    def end() -> None:
        while ends:
            ends.pop()()

    return end


class _Event:
    """The listeners of an event, and the one replacement in torch while there are any.

    Args:
        replace: makes torch call a function at the event; returns a function that restores torch.
    """

    def __init__(self, replace: Callable[[_Listener], Callable[[], None]]) -> None:
        self._replace = replace
        self._restore: Callable[[], None] | None = None
        self._listeners: tuple[_Listener, ...] = ()

    def __call__(self, listener: _Listener) -> Callable[[], None]:
        """Add a listener; return a function that removes it."""
        self._listeners += (listener,)
        if self._restore is None:
            self._restore = self._replace(self._happened)
        return functools.partial(self._discard, listener)

    def _discard(self, listener: _Listener) -> None:
        self._listeners = tuple(one for one in self._listeners if one is not listener)
        if not self._listeners and self._restore is not None:
            restore, self._restore = self._restore, None
            restore()

    def _happened(self, *args: Any) -> Any:
        """Call the listeners; return what the last one that returned anything did."""
        result = None
        for listener in self._listeners:
            own = listener(*args)
            if own is not None:
                result = own
        return result


def _of_method(owner: type, name: str) -> _Event:
    """Return the event that a method of a class is about to be called."""
    return _Event(functools.partial(listen, owner, name))


def _replace_module_call(happened: _Listener) -> Callable[[], None]:
    def called(module: nn.Module) -> None:
        # Traces must not be changed.
        elsewhere = (
            torch._C._current_graph_task_id() != -1
            or torch._C._get_tracing_state() is not None
            or _is_compiling(module)
        )
        if not elsewhere:
            happened(module)

    return listen(nn.Module, "__call__", called)


def _is_compiling(module: nn.Module) -> bool:
    """Return whether torch.compile accesses a module without calling it."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and _module_of(frame).startswith("vinedresser."):
        frame = frame.f_back
    of_compiler = type(module).__module__.startswith(_COMPILER)
    return frame is not None and _module_of(frame).startswith(_COMPILER) and not of_compiler


def _module_of(frame: FrameType) -> str:
    """Return the name of a frame's Python module."""
    return str(frame.f_globals.get("__name__", ""))


def _replace_backward(happened: _Listener) -> Callable[[], None]:
    """Replace the helper that torch calls for the initial gradients.

    It returns before the backward pass begins; a wrapper around `torch.autograd.backward` would add
    a frame to the traceback of every error.
    """
    original = _AUTOGRAD._make_grads

    def make_grads(tensors: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        # `torch.autograd.grad` calls it, too. torch.compile, which compiles what a compiled step
        # calls, cannot compile the look at the caller.
        if (
            not torch.compiler.is_compiling()
            and sys._getframe(1).f_code.co_name == "backward"
            and torch._C._current_graph_task_id() == -1
        ):
            happened(tensors)
        return original(tensors, *args, **kwargs)

    def restore() -> None:
        # If another library has replaced it since, only that library can restore it.
        if _AUTOGRAD._make_grads is make_grads:
            _AUTOGRAD._make_grads = original

    _AUTOGRAD._make_grads = make_grads
    return restore


def _replace_next_batch(happened: _Listener) -> Callable[[], None]:
    def observed(_: Any, following: Callable[[], Any]) -> Callable[[], Any]:
        def loaded() -> Any:
            batch = passed_on(following, (), {})
            other = happened(batch)
            return batch if other is None else other[0]

        return loaded

    return wrap(_BaseDataLoaderIter, "__next__", observed)


def _replace_load(happened: _Listener) -> Callable[[], None]:
    def observed(module: nn.Module, load: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(load)
        def loaded(*args: Any, **kwargs: Any) -> Any:
            happened(module, args[0] if args else kwargs.get("state_dict"))
            return passed_on(load, args, kwargs)

        return loaded

    return wrap(nn.Module, "load_state_dict", observed)


def _replace_scaler_step(
    begins: _Listener | None = None, ended: _Listener | None = None
) -> Callable[[], None]:
    def observed(scaler: GradScaler, step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def taken(optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
            if begins is not None:
                begins(scaler, optimizer)
            result = passed_on(step, (optimizer, *args), kwargs)
            if ended is not None:
                ended(scaler, optimizer)
            return result

        return taken

    return wrap(GradScaler, "step", observed)


# What a listener does at each event, for messages, and the event.
_EVENTS: dict[str, tuple[str, Callable[[_Listener], Callable[[], None]]]] = {
    "optimizer_made": ("noticing an optimizer", _of_method(Optimizer, "add_param_group")),
    "scheduler_made": ("noticing a scheduler", _of_method(LRScheduler, "_initial_step")),
    "batch_awaited": ("looking at a data loader", _of_method(_BaseDataLoaderIter, "__next__")),
    "batch_loaded": ("noticing a batch", _Event(_replace_next_batch)),
    "module_called": ("looking for a model", _Event(_replace_module_call)),
    "loss_scaled": ("noticing a scaler", _of_method(GradScaler, "scale")),
    "backward_begins": ("noticing a loss", _Event(_replace_backward)),
    "gradients_cleared": ("noticing cleared gradients", _of_method(nn.Module, "zero_grad")),
    "state_taken": ("noticing a state", _of_method(nn.Module, "state_dict")),
    "weights_loaded": ("noticing loaded weights", _Event(_replace_load)),
    "step_begins": (
        "the start of an optimizer step",
        lambda listener: listen_to_all_steps(before=listener),
    ),
    "step_ended": (
        "the end of an optimizer step",
        lambda listener: listen_to_all_steps(after=listener),
    ),
    "scaler_step_begins": (
        "the start of a scaler's step",
        _Event(lambda happened: _replace_scaler_step(begins=happened)),
    ),
    "scaler_step_ended": (
        "the end of a scaler's step",
        _Event(lambda happened: _replace_scaler_step(ended=happened)),
    ),
}
