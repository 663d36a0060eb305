"""In which passes a model has to be run to see all that it computes, and what no pass reaches."""

from __future__ import annotations

import random
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from vinedresser.errors import PruningError
from vinedresser.frameworks.torch_.call import tensors_in
from vinedresser.frameworks.torch_.modes import EachOperator
from vinedresser.pruning.torch_.modes import EVALUATION, Pass, is_of_torch, is_settled
from vinedresser.pruning.torch_.running import RAISED, Example, output_tensors, summary

__all__ = ["Passes", "explored"]

# Runs in each mode of a model that draws at random which of its layers run; of those that differ,
# this many are followed, and those that reach further layers.
_DRAWS, _FOLLOWED = 16, 6


@dataclass(frozen=True)
class Passes:
    """How a model is run for its pruning.

    Attributes:
        runs: the passes, first that in evaluation mode.
        idle: biases of PyTorch's layers that are not used, although the weight beside them is.
        scopes: names of the modules whose code may run other layers that no pass reaches.
        reason: why the channels that this code can read are locked.
        notes: what could not be seen, one sentence each.
    """

    runs: tuple[Pass, ...] = (EVALUATION,)
    idle: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    reason: str = ""
    notes: tuple[str, ...] = ()


class _Recorder:
    """Notes which operators run on which tensors, and which parameters meet the input.

    Tensors are told apart by their storages, which their views share.

    Args:
        weights: the model's weights by name.

    Attributes:
        operators: each operator with its arguments; of tensors, number of the storage, and shape.
        reached: names of weights that were combined with something that depends on the input.
        is_random: whether what runs may depend on random numbers.
    """

    def __init__(self, weights: Mapping[str, torch.Tensor], inputs: Iterable[torch.Tensor]) -> None:
        self.operators: list[Any] = []
        self.reached: set[str] = set()
        self.is_random = False
        self._has_drawn = False
        self._alive: list[torch.Tensor] = []
        self._numbers: dict[int, int] = {}
        self._from_input: set[int] = set()
        self._sources: dict[int, set[str]] = {}
        for name, tensor in weights.items():
            self._sources.setdefault(self._number(tensor), set()).add(name)
        self._from_input |= {self._number(one) for one in inputs}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what runs in the block."""
        states = _global_states()
        try:
            with EachOperator(self._run):
                yield
        finally:
            self.is_random |= _global_states() != states

    def _run(
        self, func: torch._ops.OpOverload, args: tuple[Any, ...], given: Mapping[str, Any]
    ) -> Any:
        self.operators.append((func, *self._described((args, given))))
        result = func(*args, **given)
        self._follow(list(tensors_in([*args, *given.values()])), list(tensors_in([result])))
        if torch.Tag.nondeterministic_seeded in func.tags:
            single = [one for one in tensors_in([result]) if one.numel() == 1]
            self._has_drawn |= bool(single) or not is_settled(func)
        # A number of the model's becomes one of Python's, which may decide what runs.
        self.is_random |= self._has_drawn and func is torch.ops.aten._local_scalar_dense.default
        return result

    def end(self, outputs: list[torch.Tensor]) -> None:
        """Take the outputs of the model."""
        self.operators.append(self._described(outputs))
        for tensor in outputs:
            self.reached |= self._sources.get(self._number(tensor), set())
        self._alive.clear()

    def _described(self, values: Any) -> tuple[Any, ...]:
        leaves, structure = pytree.tree_flatten(values)
        return structure, *(
            (self._number(leaf), tuple(leaf.shape), leaf.storage_offset())
            if isinstance(leaf, torch.Tensor)
            else leaf
            for leaf in leaves
        )

    def _number(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()._cdata
        if storage not in self._numbers:
            # Another storage must not get the address of a freed one.
            self._alive.append(tensor)
            self._numbers[storage] = len(self._numbers)
        return self._numbers[storage]

    def _follow(self, given: list[torch.Tensor], made: list[torch.Tensor]) -> None:
        numbers = [self._number(one) for one in given]
        made_numbers = [self._number(one) for one in made]
        if not self._from_input.isdisjoint(numbers):
            self._from_input.update(made_numbers)
            # A single number of all weights is a penalty: it runs no layer.
            for number, tensor in zip(numbers, given, strict=True):
                if tensor.numel() > 1:
                    self.reached |= self._sources.get(number, set())
        else:
            sources = set().union(*(self._sources.get(one, set()) for one in numbers))
            for number in made_numbers:
                self._sources.setdefault(number, set()).update(sources)


def _global_states() -> tuple[Any, ...]:
    """Return the states of the generators of Python and NumPy."""
    state = np.random.get_state(legacy=False)["state"]
    return random.getstate(), state["key"].tobytes(), state["pos"]


def explored(model: torch.nn.Module, example: Example) -> Passes:
    """Return the passes in which a model does different things.

    It is run in evaluation and in training mode, and repeatedly if it draws at random what runs.

    Args:
        model: a copy of the model, in evaluation mode, which stays as it is.
        example: its arguments.
    """
    runs: list[Pass] = []
    reached: set[str] = set()
    seen: list[list[Any]] = []
    failure = ""
    for training in (False, True):
        try:
            runs += _drawn_passes(model, example, training, seen, reached)
        except (PruningError, *RAISED) as error:
            if not training:
                # The trace fails in the same way, and says so.
                return Passes()
            failure = summary(error)
    sized = {name for name, one in _weights(model).items() if max(one.shape, default=1) > 1}
    idle = frozenset(name for name in sized - reached if _is_idle(model, name, reached))
    missing = sized - reached - idle
    names = _outermost(model, missing)
    why = f" (its training mode does not run: {failure})" if failure else ""
    notes = []
    if failure:
        notes.append(
            f"only evaluation mode was checked: in training mode, the example fails: {failure}"
        )
    if len(runs) > len({run.training for run in runs}):
        notes.append(
            f"the model draws at random what runs: {len(runs)} different runs were checked; there "
            "may be others"
        )
    if names:
        notes.append(
            f"no run on the example reaches {', '.join(names)}: channels that may pass there stay; "
            "remove what is unused, or pass an example that reaches it"
        )
    reason = f"may pass {', '.join(names)}, which no run on the example reaches{why}"
    return Passes(tuple(runs), idle, _scopes(model, missing), reason if names else "", tuple(notes))


def _weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return what shows whether layers run: parameters, and means of normalizations without any."""
    means = {
        f"{path}.running_mean".removeprefix("."): module.running_mean
        for path, module in model.named_modules()
        if isinstance(module, torch.nn.modules.batchnorm._NormBase)
        and not module.affine
        and module.running_mean is not None
    }
    return {**dict(model.named_parameters()), **means}


def _drawn_passes(
    model: torch.nn.Module,
    example: Example,
    training: bool,
    seen: list[list[Any]],
    reached: set[str],
) -> list[Pass]:
    """Return the passes in a mode that do something else than those before, or reach more.

    Args:
        model: see `explored`.
        example: see `explored`.
        seen: the operators of other passes; those of this mode are added.
        reached: names of the parameters that they reached; more are added.
    """
    runs: list[Pass] = []
    for seed in range(_DRAWS):
        one = Pass(training, seed)
        found = _recorded(model, example, one)
        if found.operators not in seen:
            seen.append(found.operators)
            if len(runs) < _FOLLOWED or not found.reached <= reached:
                runs.append(one)
        reached |= found.reached
        if not found.is_random:
            break
    return runs


def _is_idle(model: torch.nn.Module, name: str, reached: Collection[str]) -> bool:
    """Return whether a parameter can only be added to what the weight of its layer makes."""
    layer, _, own = name.rpartition(".")
    weight = f"{layer}.weight".removeprefix(".")
    return own == "bias" and is_of_torch(model.get_submodule(layer)) and weight in reached


def _outermost(model: torch.nn.Module, missing: Collection[str]) -> list[str]:
    """Return the names of parameters, or of modules without any other parameter, sorted."""
    names = [*_weights(model)]
    found = set()
    for name in missing:
        parts = name.split(".")
        outer = (".".join(parts[:length]) for length in range(1, len(parts)))
        whole = (
            module
            for module in outer
            if all(one in missing for one in names if one.startswith(f"{module}."))
        )
        found.add(next(whole, name))
    return sorted(found)


def _scopes(model: torch.nn.Module, missing: Collection[str]) -> frozenset[str]:
    """Return the names of the modules around parameters, under any of their names."""
    wanted = {id(one) for name, one in _weights(model).items() if name in missing}
    found = set()
    for path, module in model.named_modules(remove_duplicate=False):
        own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
        if wanted & {id(one) for one in own}:
            parts = path.split(".")
            found |= {".".join(parts[:length]) for length in range(len(parts) + 1)}
    first = {module: path for path, module in model.named_modules()}
    # A module that has several names is followed under its first.
    return frozenset(first[model.get_submodule(path)] for path in found)


def _recorded(model: torch.nn.Module, example: Example, one: Pass) -> _Recorder:
    """Run a model once, and return what was seen."""
    fresh = example.fresh()
    recorder = _Recorder(_weights(model), fresh.tensors)
    with warnings.catch_warnings():
        # Of code that the user may not have run with these arguments.
        warnings.simplefilter("ignore")
        outputs = output_tensors(fresh.run(model, one, recorder.watching()))
    recorder.end(outputs)
    return recorder
