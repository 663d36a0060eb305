"""Capturing inputs and outputs of modules and of the functions they call."""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.copies.torch_copier import Keep
from vinedresser.capture.torch_.forward.attention import ATTENTION, attention_probabilities
from vinedresser.capture.torch_.forward.function_calls import FunctionCalls, functions_can_be_seen
from vinedresser.capture.torch_.forward.hook_selection import (
    FORWARD_KINDS,
    fused_modules,
    needs_hooks,
    only_activations,
    runs_only_known_code,
)
from vinedresser.capture.torch_.forward.input_taylor import InputTaylor
from vinedresser.capture.torch_.forward.loss_terms.call import TermCall
from vinedresser.capture.torch_.forward.loss_terms.recorder import LossTerms
from vinedresser.capture.torch_.losses.losses import batch_size
from vinedresser.capture.torch_.modules import activation_name
from vinedresser.frameworks.torch_.modes import WithoutModes
from vinedresser.frameworks.torch_.module_calls import ModuleHook
from vinedresser.frameworks.torch_.names import MethodAsForward, Names
from vinedresser.frameworks.torch_.nesting import argument_leaves, leaves

__all__ = ["ForwardHooks", "is_compiled", "is_elsewhere"]


class _Call(NamedTuple):
    """A call of a module in progress.

    Attributes:
        name: name of the call, such as "conv1" or "conv1#1".
        is_activation: the module is an activation, so the functions it calls are not captured.
        terms: the call as part of the loss's decomposition; None if it is no part of it.
        model: name of the call as one of the model; "" if it is none.
    """

    path: str
    name: str
    is_activation: bool
    terms: TermCall | None
    model: str = ""


class _Calls(threading.local):
    """The calls in progress of the current thread, outermost first."""

    def __init__(self) -> None:
        self.open: list[_Call] = []


class ForwardHooks:
    """Hooks on modules and functions during one forward of the model.

    An idle hook costs more than a microsecond per call and disables torch's fast path, so hooks are
    installed only in forwards in which something is captured.

    Args:
        root: the model that is called, with its wrappers.
        names: names of the user's model inside.
        keep: shielded `TensorCopier.keep`.
        is_open: returns whether a recording's step has not ended.
        shield: guards every hook.

    Attributes:
        there: hooks may be installed, so `clear` must be called.
    """

    def __init__(
        self,
        root: nn.Module,
        names: Names,
        keep: Keep,
        is_open: Callable[[Recording], bool],
        shield: Shield,
    ) -> None:
        self.there = False
        self._root = root
        self._names = names
        self._core = root.core if isinstance(root, MethodAsForward) else None
        self._keep = keep
        self._shield = shield
        self._taylor = InputTaylor(keep, is_open, shield)
        self._terms = LossTerms(keep, shield)
        # By name of a function's call.
        self._of_functions: dict[str, TermCall] = {}
        guard = shield.guard
        self._guarded_end = guard("the end of a forward", self.end)
        self._guarded_before = guard("the input of", self._before, names=0)
        self._guarded_after = guard("the output of", self._after, names=0)
        self._guarded_call = guard("a call of", self._before_function, names=1)
        self._guarded_return = guard("the output of", self._after_function, names=0)
        self._attend = guard("attention in", self._take_attention, names=0)
        # The hooks before and after a module by path.
        self._hooks: dict[str, tuple[ModuleHook, ModuleHook]] = {}
        self._inner: list[RemovableHandle] = []
        self._outer: list[RemovableHandle] = []
        # The number of calls of modules and functions in this forward, by path.
        self._counts: Counter[str] = Counter()
        self._calls = _Calls()
        self._stance: Any = None
        self._functions: FunctionCalls | None = None
        self._observed: FunctionCalls | None = None
        # The model calls a compiled function, which must not run in a function mode.
        self._calls_compiled = False
        self._recording: Recording | None = None
        self._kinds: frozenset[str] = frozenset()

    def install(self, recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Install the hooks until the forward ends.

        Compiled code does not call hooks installed after compilation, so this forward runs
        uncompiled; the compiled code is kept.

        Args:
            recording: receives the tensors.
            args: positional arguments of the model.
            kwargs: keyword arguments of the model.
        """
        self._kinds = frozenset(kind for kind in FORWARD_KINDS if recording.due.reaches(kind))
        if not self._kinds:
            return
        if self._only_the_input_of_the_root(recording):
            self._take(recording, argument_leaves(args, kwargs, f"inputs/{self._names.root}"))
            return
        self.there = True
        self._recording = recording
        self._terms.begin(recording, batch_size((args, kwargs)))
        self._counts.clear()
        self._calls.open.clear()
        self._of_functions.clear()
        modules = self._names.modules()
        fused = fused_modules(module for _, module in modules)
        closed = _parts(one for one in fused if not isinstance(one, nn.MultiheadAttention))
        few = only_activations(recording.due)
        known = few and runs_only_known_code(module for _, module in modules)
        for path, module in modules:
            # TorchScript modules and their children do not support hooks.
            if isinstance(module, torch.jit.ScriptModule) or id(module) in closed:
                continue
            if not few or module is self._core or needs_hooks(path, module, recording.due):
                self._set(path, module, args, kwargs)
        self._await_end()
        if is_compiled(self._root):
            self._stance = torch.compiler.set_stance("force_eager")
        if fused:
            self._shield.report(
                f"in evaluations torch may use a fused kernel for {type(fused[0]).__name__}, so "
                "its inner modules and the functions that the model calls are not captured there; "
                "torch.backends.mha.set_fastpath_enabled(False) disables that"
            )
        elif not known and not self._calls_compiled and functions_can_be_seen():
            self._functions = FunctionCalls(self._guarded_call, self._guarded_return)
            self._functions.begin()

    def observe(self, functions: FunctionCalls) -> None:
        """Have further functions observed until the forward ends, whether or not hooks are there.

        Args:
            functions: has not begun.
        """
        if not self.there:
            self.there = True
            self._await_end()
        self._observed = functions
        functions.begin()

    def _await_end(self) -> None:
        # Otherwise, `before_calls` calls `end`: a hook in compiled code would run too early.
        if self._root._compiled_call_impl is None:
            end = ModuleHook(self._guarded_end, self._root)
            self._outer.append(self._root.register_forward_hook(end, always_call=True))

    def _only_the_input_of_the_root(self, recording: Recording) -> bool:
        """Return whether only the root's input is due, which needs neither hooks nor eager code."""
        if self._kinds != {"inputs"} or is_elsewhere() or isinstance(self._root, MethodAsForward):
            return False
        root = self._names.root
        places = recording.due.only_at("inputs")
        if places is None or places == frozenset({root}):
            return places is not None
        # The inputs of other models may be due, too. A function belongs to the module calling it.
        called = {place.rpartition(".")[0] for place in places if place.endswith("()")}
        inside = places | called
        return root not in called and inside.isdisjoint(
            path for path, _ in self._names.modules() if path != root
        )

    def finish(self, recording: Recording) -> None:
        """Capture what needs the gradients of the forward, at the end of the step."""
        self._terms.finish(recording)

    def clear(self) -> None:
        """Remove all hooks; must not be called from a hook."""
        if self.there:
            self.end()
            while self._outer:
                self._outer.pop().remove()
            self.there = False

    def end(self, *_: Any) -> None:
        """Remove the hooks at the end of the forward."""
        # The root's hooks remain until `clear`, since torch is iterating over them.
        self._recording = None
        while self._inner:
            self._inner.pop().remove()
        stance, self._stance = self._stance, None
        if stance is not None:
            stance.__exit__(None, None, None)
        observed, self._observed = self._observed, None
        if observed is not None:
            observed.end()
        functions, self._functions = self._functions, None
        if functions is not None:
            functions.end()
            if functions.compiling:
                self._calls_compiled = True
                self._shield.report(
                    "the model calls a compiled function, which torch would recompile if function "
                    "calls were captured, so the functions that the model calls are not captured"
                )

    def _set(
        self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Install the hooks of a module."""
        if path not in self._hooks:
            before = functools.partial(self._guarded_before, path)
            after = functools.partial(self._guarded_after, path)
            self._hooks[path] = ModuleHook(before), ModuleHook(after)
        first, then = self._hooks[path]
        if module is not self._root:
            self._inner.append(module.register_forward_pre_hook(first, with_kwargs=True))
            self._inner.append(module.register_forward_hook(then, always_call=True))
        else:
            # Torch is already calling the root's pre-hooks.
            self._guarded_before(path, module, args, kwargs)
            self._outer.append(module.register_forward_hook(then))

    def _before(
        self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Capture a module's inputs before it may overwrite them."""
        recording = self._recording
        if recording is None or is_elsewhere():
            return
        name = self._counted(path)
        terms = None
        if "loss_terms" in self._kinds:
            terms = self._entered(name, module, args, kwargs)
        calls = self._calls.open
        model = self._counted(self._names.root) if module is self._core and not calls else ""
        calls.append(_Call(path, name, bool(activation_name(module)), terms, model))
        if "inputs" in self._kinds:
            for one in filter(None, (name, model)):
                self._take(recording, argument_leaves(args, kwargs, f"inputs/{one}"))
        if "input_taylor" in self._kinds:
            for full, tensor in argument_leaves(args, kwargs, f"input_taylor/{name}"):
                if ask := recording.due.ask(full):
                    self._taylor.await_gradient(recording, full, tensor, ask, module)

    def _after(self, path: str, _module: nn.Module, _args: Any, output: Any) -> None:
        """Capture a module's outputs before they may be overwritten."""
        recording = self._recording
        if recording is None or is_elsewhere():
            return
        calls = self._calls.open
        if calls and calls[-1].path == path:
            _, name, _, terms, model = calls.pop()
            # A call that raised an error has no output.
            if "outputs" in self._kinds:
                for one in filter(None, (name, model)):
                    self._take(recording, leaves(output, f"outputs/{one}"))
            if terms is not None:
                self._terms.leave(terms, output)

    def _before_function(
        self,
        function: Callable[..., Any],
        spelled: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> str | None:
        """Capture a function's inputs; return the name of the call, or None to ignore it."""
        recording = self._recording
        if recording is None or is_elsewhere():
            return None
        calls = self._calls.open
        path = calls[-1].path if calls else self._names.root
        if function in ATTENTION and "attention" in self._kinds:
            self._attend(path, recording, function, args, kwargs)
        if function is nn.functional.multi_head_attention_forward:
            # The inputs and outputs are captured as those of the module.
            return None
        if calls and calls[-1].is_activation:
            return None
        name = self._counted(f"{path}.{spelled}()")
        given = {key: value for key, value in kwargs.items() if key != "out"}
        if "inputs" in self._kinds:
            self._take(recording, argument_leaves(args, given, f"inputs/{name}"))
        if "loss_terms" in self._kinds and (terms := self._entered(name, None, args, given)):
            self._of_functions[name] = terms
        return name

    def _after_function(self, name: str, result: Any) -> None:
        """Capture a function's outputs."""
        if self._recording is not None and "outputs" in self._kinds:
            self._take(self._recording, leaves(result, f"outputs/{name}"))
        if terms := self._of_functions.pop(name, None):
            self._terms.leave(terms, result)

    def _take_attention(
        self,
        path: str,
        recording: Recording,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Capture the probabilities of an attention function that is about to run."""
        name = self._counted(f"attention/{path}")
        ask = recording.due.ask(name)
        if ask:
            with WithoutModes():
                self._keep(recording, name, attention_probabilities(function, args, kwargs), ask)

    def _entered(
        self, name: str, module: nn.Module | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TermCall | None:
        """Note the start of a call as part of the loss's decomposition."""
        calls = self._calls.open
        parent = calls[-1].terms if calls else None
        if calls and parent is None:
            return None
        return self._terms.enter(name, module, argument_leaves(args, kwargs, name), parent)

    def _take(self, recording: Recording, named: Iterable[tuple[str, Tensor]]) -> None:
        for name, tensor in named:
            ask = recording.due.ask(name)
            if ask:
                self._keep(recording, name, tensor, ask)

    def _counted(self, path: str) -> str:
        """Count a call; return its name, with a number unless it is the first."""
        count = self._counts[path]
        self._counts[path] = count + 1
        return f"{path}#{count}" if count else path


def is_elsewhere() -> bool:
    """Return whether the current call is not part of the training's forward.

    In a backward, checkpointing calls modules again; in a transform of `torch.func`, the arguments
    are not ordinary tensors.
    """
    return (
        torch._C._current_graph_task_id() != -1
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def _parts(modules: Iterable[nn.Module]) -> set[int]:
    """Return the ids of modules and all their descendants."""
    return {id(part) for module in modules for part in module.modules()}


def is_compiled(root: nn.Module) -> bool:
    """Return whether any part of a model is compiled by torch.compile."""
    dynamo = sys.modules.get("torch._dynamo")
    return dynamo is not None and any(
        isinstance(module, dynamo.OptimizedModule)
        or module._compiled_call_impl is not None
        # Lightning unwraps a compiled module and compiles its steps.
        or getattr(module, "_compiler_ctx", None) is not None
        for module in root.modules()
    )
