"""Notification before and after the steps of optimizers, of all or of a single one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

__all__ = ["Arguments", "listen_to_all_steps", "listen_to_steps"]

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of a step; the first positional one is the optimizer."""

_Before = Callable[[Optimizer, Any, Any], Arguments | None]
_After = Callable[[Optimizer, Any, Any], object]

# The function that torch puts in the place of each class's `step`.
_STEP = Optimizer.profile_hook_step(lambda _: None).__code__


def listen_to_all_steps(
    before: _Before | None = None, after: _After | None = None
) -> Callable[[], None]:
    """Call functions before and after each step of any optimizer.

    A class that overrides `step` may call that of its base class, which torch hooks, too: the inner
    step is part of the outer one and not told of. The functions are called in the order in which
    they were added, before the hooks of the optimizer itself, and not in compiled code.

    Args:
        before: called with the optimizer and the arguments of its step; returns other arguments,
            or None for the same.
        after: called after the step, with the same; not if the step raises an error.

    Returns:
        A function that ends it.
    """
    return _STEPS.add(before, after)


def listen_to_steps(
    optimizer: Optimizer, before: _Before = lambda *_: None, after: _After = lambda *_: None
) -> Callable[[], None]:
    """Call functions before and after each step of an optimizer, see `listen_to_all_steps`.

    They are called after those hooks that the optimizer already has, which may change gradients.

    Args:
        before: see `listen_to_all_steps`.
        after: see `listen_to_all_steps`.
    """

    def begins(optimizer: Optimizer, args: Any, kwargs: Any) -> Arguments | None:
        if torch.compiler.is_compiling() or _STEPS.is_inner(optimizer):
            return None
        return before(optimizer, args, kwargs)

    def ended(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not torch.compiler.is_compiling() and not _STEPS.is_inner(optimizer):
            after(optimizer, args, kwargs)

    # Which steps are inner ones is known as long as all are watched.
    stop_watching = _STEPS.add(None, None)
    handles = [optimizer.register_step_pre_hook(begins), optimizer.register_step_post_hook(ended)]

    def end() -> None:
        if handles:
            stop_watching()
        while handles:
            handles.pop().remove()

    return end


class _Steps:
    """The listeners to the steps of all optimizers."""

    def __init__(self) -> None:
        self._listeners: tuple[tuple[_Before | None, _After | None], ...] = ()
        self._handles: list[RemovableHandle] = []
        # Number of calls of `_begins` and `_ended` in progress, in which torch iterates over hooks.
        self._iterating = 0
        # Number of steps of an optimizer within each other, by its id. After an error in a step it
        # may be too high.
        self._depths: dict[int, int] = {}

    def add(self, before: _Before | None, after: _After | None) -> Callable[[], None]:
        """Add listeners; return a function that removes them."""
        own = before, after
        self._listeners += (own,)
        if not self._handles:
            self._handles = [
                register_optimizer_step_pre_hook(self._begins),
                register_optimizer_step_post_hook(self._ended),
            ]

        def discard() -> None:
            self._listeners = tuple(listener for listener in self._listeners if listener is not own)
            if not self._listeners and not self._iterating:
                while self._handles:
                    self._handles.pop().remove()
                self._depths.clear()

        return discard

    def is_inner(self, optimizer: Optimizer) -> bool:
        """Return whether the running step of an optimizer is part of another one of the same."""
        return self._depths.get(id(optimizer), 0) > 1 and _number_of_steps(optimizer) > 1

    def _begins(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Arguments | None:
        if torch.compiler.is_compiling():
            return None
        self._depths[id(optimizer)] = self._depths.get(id(optimizer), 0) + 1
        if self.is_inner(optimizer):
            return None
        self._depths[id(optimizer)] = 1
        changed = None
        self._iterating += 1
        try:
            for before, _ in self._listeners:
                other = None if before is None else before(optimizer, args, kwargs)
                if other is not None:
                    changed = args, kwargs = other
        finally:
            self._iterating -= 1
        return changed

    def _ended(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if self.is_inner(optimizer):
            self._depths[id(optimizer)] -= 1
            return
        self._depths.pop(id(optimizer), None)
        self._iterating += 1
        try:
            for _, after in self._listeners:
                if after is not None:
                    after(optimizer, args, kwargs)
        finally:
            self._iterating -= 1


_STEPS = _Steps()


def _number_of_steps(optimizer: Optimizer) -> int:
    """Return the number of steps of an optimizer that the current thread is in."""
    found = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found += frame.f_code is _STEP and frame.f_locals.get("self") is optimizer
        frame = frame.f_back
    return found
