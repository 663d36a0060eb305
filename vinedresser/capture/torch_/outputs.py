"""Capturing what the modules of a torch model return, in those forwards in which it is asked."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from vinedresser.capture.config import Ask
from vinedresser.capture.recording import Recording
from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.names import Names, leaves

__all__ = ["OutputHooks"]

_Keep = Callable[[Recording, str, torch.Tensor, Ask], None]
_Hook = Callable[[nn.Module, Any, Any], None]


class OutputHooks:
    """Forward hooks on all modules, there during one forward of the model.

    An idle hook costs more than a microsecond a call, and keeps torch from the fast path: so there
    are none in forwards that capture no outputs.

    Args:
        root: the model that is called, with its wrappers.
        names: of the user's own model inside of them.
        keep: takes a tensor, as `Keeper.keep` does.
        shield: around every hook.

    Attributes:
        there: `clear` has something to do.
    """

    def __init__(self, root: nn.Module, names: Names, keep: _Keep, shield: Shield) -> None:
        self.there = False
        self._root = root
        self._names = names
        self._keep = keep
        self._guarded_take = shield.guard("the output of", self._take, names=0)
        self._hooks: dict[str, _Hook] = {}
        self._inner: list[RemovableHandle] = []
        self._outer: list[RemovableHandle] = []
        # Calls of each module in this forward, by path.
        self._calls: dict[str, int] = {}
        self._stance: Any = None
        self._recording: Recording | None = None

    def install(self, recording: Recording) -> None:
        """Set the hooks; they go when the forward ends.

        Compiled code does not call hooks that were set after it was compiled, so what is compiled
        runs uncompiled in this one forward; the compiled code is kept.

        Args:
            recording: takes the outputs.
        """
        self.there = True
        self._recording = recording
        self._calls.clear()
        for path, module in self._names.modules():
            # Compiled by TorchScript, a module takes no hooks; nor do those inside it.
            if not isinstance(module, torch.jit.ScriptModule):
                handles = self._outer if module is self._root else self._inner
                handles.append(module.register_forward_hook(self._hook(path)))
        end = self._root.register_forward_hook(self._end, always_call=True)
        self._outer.append(end)
        if _is_compiled(self._root):
            self._stance = torch.compiler.set_stance("force_eager")

    def clear(self) -> None:
        """Take away what is left of the hooks; not to be called from inside of them."""
        if self.there:
            self._end()
            while self._outer:
                self._outer.pop().remove()
            self.there = False

    def _end(self, *_: Any) -> None:
        # The root's own hooks stay till `clear`: torch is walking over them.
        self._recording = None
        while self._inner:
            self._inner.pop().remove()
        stance, self._stance = self._stance, None
        if stance is not None:
            stance.__exit__(None, None, None)

    def _hook(self, path: str) -> _Hook:
        """Return the hook of the module of a path."""
        if path not in self._hooks:
            self._hooks[path] = functools.partial(self._guarded_take, path)
        return self._hooks[path]

    def _take(self, path: str, _module: nn.Module, _args: Any, output: Any) -> None:
        """Take what a module has returned, before anybody can write to it."""
        recording = self._recording
        # Inside of a backward, it is checkpointing that computes it again.
        if recording is None or torch._C._current_graph_task_id() != -1:
            return
        call = self._calls.get(path, 0)
        self._calls[path] = call + 1
        name = f"outputs/{path}#{call}" if call else f"outputs/{path}"
        for full, tensor in leaves(output, name):
            ask = recording.due.ask(full)
            if ask:
                self._keep(recording, full, tensor, ask)


def _is_compiled(root: nn.Module) -> bool:
    """Say whether torch.compile has to do with any part of a model."""
    dynamo = sys.modules.get("torch._dynamo")
    return dynamo is not None and any(
        isinstance(module, dynamo.OptimizedModule) or module._compiled_call_impl is not None
        for module in root.modules()
    )
