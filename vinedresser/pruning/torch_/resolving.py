"""Finding out what a trace cannot tell, by removing channels and comparing outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from vinedresser.frameworks.torch_.modes import EachFunction
from vinedresser.pruning.group import Group, Indices
from vinedresser.pruning.plan import Plan, architecture_digest, make_plan
from vinedresser.pruning.proof import relative_difference
from vinedresser.pruning.torch_.context import Attribute, Context
from vinedresser.pruning.torch_.grouping import Grouping, group
from vinedresser.pruning.torch_.masking import Masking
from vinedresser.pruning.torch_.passes import Passes, explored
from vinedresser.pruning.torch_.running import (
    RAISED,
    Example,
    arrays,
    copied,
    in_precision,
    located,
    named_tensors,
    outputs_of,
    redraw,
)
from vinedresser.pruning.torch_.surgery import removed
from vinedresser.pruning.torch_.tracer import Choices, trace

__all__ = ["Resolved", "resolve"]

# Largest relative difference of outputs that is rounding, in float32 and float64.
_SINGLE, _DOUBLE = 1e-5, 1e-12


@dataclass(frozen=True, eq=False)
class Resolved:
    """Groups that were tried, and how they were found.

    Attributes:
        choices: the ways that were taken.
        counting: attributes of modules that change with the channels.
    """

    choices: Choices
    ctx: Context
    grouping: Grouping
    counting: tuple[Attribute, ...]

    def attributes(self, channels: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Return the new values of attributes, where they change."""
        gone = self.grouping.removed_roots(channels)
        values = {}
        for attribute in self.counting:
            roots = self.grouping.label_roots[attribute.labels]
            left = int((~np.isin(roots, gone)).sum())
            if left != len(roots):
                values[attribute.path] = left
        return values


@dataclass(frozen=True)
class _Failure:
    """Why channels cannot be removed.

    Attributes:
        reason: in words.
        reached: number of calls of PyTorch's functions before the model raised an error; 0 if it
            ran to its end.
    """

    reason: str
    reached: int = 0


@dataclass
class _Search:
    """What was found out so far."""

    passes: Passes
    ways: dict[int, int] = field(default_factory=dict)
    heads: frozenset[int] = frozenset()
    locks: list[tuple[Indices, str]] = field(default_factory=list)
    stages: dict[int, int] = field(default_factory=dict)
    counted: dict[int, frozenset[str]] = field(default_factory=dict)
    failures: dict[int, _Failure] = field(default_factory=dict)

    def trace(self, model: torch.nn.Module, example: Example) -> Resolved:
        """Trace a model, and again until it is known which channels belong to heads."""
        while True:
            choices = Choices(dict(self.ways), self.heads, self.passes)
            ctx, _ = trace(model, example, choices)
            if ctx.heads == self.heads:
                break
            self.heads = frozenset(ctx.heads)
        for labels, reason in self.locks:
            ctx.labels.lock(labels, reason)
        counting = {one.path: one for one in ctx.required.values()}
        for order, paths in sorted(self.counted.items()):
            for attribute in ctx.sites[order].attributes if order in ctx.sites else ():
                if attribute.path in paths:
                    first = counting.setdefault(attribute.path, attribute)
                    # One number counts both, so they shrink alike.
                    ctx.unite(first.labels, attribute.labels, f"{attribute.path} in the code")
        return Resolved(choices, ctx, group(ctx), tuple(counting.values()))

    def suspects(self, found: Resolved, groups: Sequence[Group]) -> list[Group]:
        """Return groups that could depend on a size in the code: they are also tried alone.

        A size may fit only if another group shrinks with it, which no trial of both would show.
        """
        if any(self.counted.values()) or any(self.ways.values()):
            return list(groups)
        passing = [site.labels for site in found.ctx.sites.values()]
        roots = found.grouping.label_roots[np.concatenate([np.zeros(0, dtype=np.int64), *passing])]
        return [one for one in groups if np.isin(found.grouping.roots[one.name], roots).any()]

    def explained(self, found: Resolved) -> Resolved:
        """Return the groups; of several ways that failed, the best one is the reason of a lock."""
        groups = []
        for one in found.grouping.groups:
            own = found.grouping.labels_of(one.name)
            first = [
                self.failures[site.order].reason
                for site in found.ctx.sites.values()
                if one.locked and self.ways.get(site.order) and np.isin(site.labels, own).any()
            ]
            groups.append(replace(one, locked=first[0]) if first else one)
        grouping = replace(found.grouping, groups=tuple(groups))
        return replace(found, grouping=grouping)

    def advance(self, found: Resolved, name: str, failure: _Failure) -> None:
        """Try the next way for the sites that a group passes; lock it if there is none."""
        own = found.grouping.labels_of(name)
        sites = [site for site in found.ctx.sites.values() if np.isin(site.labels, own).any()]
        for site in sites:
            # What is to be told is the code that no way gets past, not where the first one failed.
            known = self.failures.setdefault(site.order, failure)
            if failure.reached > known.reached:
                self.failures[site.order] = failure
        paths = sorted({attribute.path for site in sites for attribute in site.attributes})
        guesses = _guesses(paths)
        stage = 1 + max((self.stages.get(site.order, 0) for site in sites), default=0)
        if stage < len(guesses):
            self.stages |= {site.order: stage for site in sites}
            self.counted |= {site.order: guesses[stage] for site in sites}
            return
        left = [site for site in sites if self.ways.get(site.order, 0) + 1 < site.choices]
        for site in left:
            self.ways[site.order] = self.ways.get(site.order, 0) + 1
        for site in sites:
            self.stages.pop(site.order, None)
            self.counted.pop(site.order, None)
        if not left:
            furthest = self.failures[sites[0].order] if sites else failure
            self.locks.append((own, furthest.reason))


def _guesses(paths: Sequence[str]) -> list[frozenset[str]]:
    """Return which attributes may count channels; several may have the same value by accident."""
    every = frozenset(paths)
    one = [frozenset({path}) for path in paths]
    guesses = [frozenset[str](), every, *one, *(every - single for single in one)]
    return list(dict.fromkeys(guesses))


def resolve(model: torch.nn.Module, example: Example) -> Resolved:
    """Trace a model, try every group, and lock those whose removal changes what is left.

    Args:
        model: the model; it stays as it is.
        example: its arguments.
    """
    trial = _Trial(model, example)
    search = _Search(explored(trial.original(), example))
    while True:
        found = search.trace(trial.original(), example)
        open_groups = [one for one in found.grouping.groups if not one.locked and one.size > 1]
        failures = _failures(trial, found, open_groups)
        if not failures:
            failures = {
                suspect.name: failure
                for suspect in search.suspects(found, open_groups)
                if (failure := trial.failure(found, [suspect]))
            }
        if not failures:
            return search.explained(found)
        for name, failure in failures.items():
            search.advance(found, name, failure)


def _failures(trial: _Trial, found: Resolved, groups: Sequence[Group]) -> dict[str, _Failure]:
    """Return the groups whose removal fails, with the reason.

    All are tried at once; only if that fails, halves, until the culprits are found.
    """
    failure = trial.failure(found, groups)
    if failure is None:
        return {}
    if len(groups) == 1:
        return {groups[0].name: failure}
    middle = len(groups) // 2
    failures = _failures(trial, found, groups[:middle]) | _failures(trial, found, groups[middle:])
    # Each half can be removed without the other, but not with it.
    return failures or {groups[-1].name: failure}


class _Trial:
    """Removes channels of a model with random weights, and compares outputs.

    Args:
        model: the model; it stays as it is.
    """

    def __init__(self, model: torch.nn.Module, example: Example) -> None:
        self._model = model
        self._example = example
        # One copy for both weights: to allocate a large model takes longer than to fill it.
        self._copy = copied(model, {})
        self._is_redrawn = False

    def original(self) -> torch.nn.Module:
        """Return a copy of the model with its own weights, until the next trial."""
        if self._is_redrawn:
            own = named_tensors(self._model)
            with torch.no_grad():
                for name, tensor in named_tensors(self._copy).items():
                    tensor.copy_(own[name])
            self._is_redrawn = False
        return self._copy

    def failure(self, found: Resolved, groups: Sequence[Group]) -> _Failure | None:
        """Return why a quarter of the channels of groups cannot be removed; None if they can."""
        random = np.random.default_rng(0)
        channels = {
            one.name: tuple(
                random.choice(one.size, size=max(1, one.size // 4), replace=False).tolist()
            )
            for one in groups
        }
        if not channels:
            return None
        if not self._is_redrawn:
            redraw(self._copy)
            self._is_redrawn = True
        # Several times faster, and nearly always enough; the rest is decided in float64.
        if _outcome(self._copy, self._example, found, channels, _SINGLE) is None:
            return None
        return _outcome(*self._precise, found, channels, _DOUBLE)

    @cached_property
    def _precise(self) -> tuple[torch.nn.Module, Example]:
        """The copy with random weights, and the example, in float64."""
        return in_precision(self._copy, torch.float64), self._example.to(torch.float64)


def _outcome(
    model: torch.nn.Module,
    example: Example,
    found: Resolved,
    channels: dict[str, tuple[int, ...]],
    limit: float,
) -> _Failure | None:
    """Return why channels cannot be removed; None if outputs differ by no more than the limit."""
    calls = 0

    def counted(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal calls
        calls += 1
        return func(*args, **kwargs)

    try:
        smaller = removed(model, _plan(model, found, channels))
        with EachFunction(counted):
            pruned = arrays(outputs_of(smaller, example, found.choices.passes.runs))
    except RAISED as error:
        told = f"the model does not run without some of its channels ({located(error)})"
        return _Failure(told, calls)
    masking = Masking(found.grouping.removed_labels(channels))
    masked = arrays(trace(model, example, found.choices, masking)[1])
    difference = relative_difference(masked, pruned)
    if difference <= limit:
        return None
    return _Failure(
        f"without some of its channels, the model computes something else (by {difference:.2g})"
    )


def _plan(model: torch.nn.Module, found: Resolved, channels: dict[str, tuple[int, ...]]) -> Plan:
    shapes = {name: tuple(tensor.shape) for name, tensor in named_tensors(model).items()}
    return make_plan(
        channels,
        {one.name: one for one in found.grouping.groups},
        architecture=architecture_digest(shapes),
        criterion="",
        scores={},
        attributes=found.attributes(channels),
    )
