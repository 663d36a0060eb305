"""The changes that are tried on a recorded state."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from vinedresser.frameworks.torch_.codec import digest
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.replay.batch import Batch, batch_size
from vinedresser.replay.changed_inputs import changed_inputs
from vinedresser.replay.what_if.change import Change, Facts
from vinedresser.replay.what_if.changeable import Changeable
from vinedresser.replay.what_if.network_changes import likely_changes, output_changes
from vinedresser.replay.what_if.precision import cast_batch, in_precision
from vinedresser.replay.what_if.results import SHUFFLED
from vinedresser.snapshots.trees import Computed

__all__ = ["changes_for", "labels_are_apart", "shuffle_of"]

_EPS = 1e-4
_CLIP = 1.0
_USUAL_PACE = 1e-3
_SEED = 4711
# Inputs within these limits are not worth a change.
_LARGEST, _SMALLEST = 3.0, 0.1


def changes_for(
    training: Changeable, models: list[nn.Module], first: Batch, facts: Facts
) -> list[Change]:
    """Return the changes that apply, those first that should be tried if there is little time.

    Args:
        first: the first recorded batch.
        facts: what is known about it.
    """
    likely = [*_precisions(training, models, facts)]
    likely += [] if facts.at_once else _updates(training, facts)
    # Without its controls, a cure proves nothing.
    controls = [*filter(None, [shuffle_of(training, first)]), *_random(facts)]
    reasoned = list(likely_changes(training, facts)) if len(models) == 1 else []
    others = [*_networks(training, models, first)]
    others += output_changes(training, facts) if len(models) == 1 else []
    return [*likely[:2], *controls, *reasoned, *likely[2:], *others]


def _precisions(training: Changeable, models: list[nn.Module], facts: Facts) -> Iterator[Change]:
    def change(wide: torch.dtype, instead: torch.dtype) -> Change:
        words = f"{_word(wide)} instead of {_word(instead)}"
        return Change("precision", words, partial(_in_precision, training, models, wide))

    if facts.half is not None:
        yield change(torch.float32, facts.half)
    elif facts.nonfinite:
        yield change(torch.float64, torch.float32)


def _updates(training: Changeable, facts: Facts) -> Iterator[Change]:
    if facts.accumulates:
        yield Change("zero_grad", "zero_grad() before each step", partial(_cleared, training))
    groups = training.groups
    rates = [float(group["lr"]) for group in groups]
    for factor in _factors(facts):
        words = f"learning rate {rates[0] * factor:.4g} instead of {rates[0]:.4g}"
        if len(set(rates)) > 1:
            words = f"learning rates times {factor:g}"
        values = rates[0], rates[0] * factor
        within = partial(_scaled, training, factor)
        yield Change("learning rate", words, within, values=values, learns=factor > 1)
    if facts.norm > _CLIP:
        words = f"gradients clipped to a norm of {_CLIP:g}, from up to {facts.norm:.3g}"
        values = facts.norm, _CLIP
        yield Change("clipping", words, partial(_clipped, training), values=values)
    decay = max(float(group.get("weight_decay") or 0.0) for group in groups)
    if decay > 0:
        words = f"no weight decay instead of {decay:g}"
        within = partial(_without_decay, training)
        yield Change("weight decay", words, within, values=(decay, 0.0))
    eps = [float(group["eps"]) for group in groups if type(group.get("eps")) is float]
    if eps and max(eps) < _EPS:
        words = f"eps {_EPS:g} instead of {eps[0]:g} in the optimizer"
        yield Change("eps", words, partial(_with_eps, training), values=(eps[0], _EPS))


def _factors(facts: Facts) -> list[float]:
    """Return the factors of the learning rate that are tried, powers of 10.

    Of a training that stands still, those by which a step moves the weights by about a thousandth
    and a hundredth of their norm, as in usual trainings.
    """
    # A rate that a schedule raises later is low on purpose.
    if facts.pace and not facts.scheduled:
        usual = round(math.log10(_USUAL_PACE / facts.pace))
        return [10.0**usual, 10.0 ** (usual + 1)]
    return [0.1, 0.01]


def _networks(training: Changeable, models: list[nn.Module], first: Batch) -> Iterator[Change]:
    dropouts = [
        module
        for each in models
        for module in each.modules()
        if isinstance(module, _DropoutNd) and module.training and module.p > 0
    ]
    if dropouts:
        within = partial(_without_dropout, dropouts)
        yield Change("dropout", "no dropout", within, values=(float(dropouts[0].p), 0.0))
    scales = _Scales(first)
    if scales.unusual:
        yield Change(
            "inputs",
            f"inputs normalized; they range from {scales.lowest:.3g} to {scales.highest:.3g}",
            partial(changed_inputs, training.model, scales.normalized),
        )


def shuffle_of(training: Changeable, first: Batch) -> Change | None:
    """Return the control whose labels are shuffled; None if a batch has one sample only.

    Args:
        first: the first recorded batch.
    """
    size = batch_size(Batch(first.args, first.kwargs, (), None))
    if size < 2:
        return None
    order = torch.randperm(size, generator=torch.Generator().manual_seed(_SEED))
    within = partial(changed_inputs, training.model, partial(_shuffled, order=order))
    return Change(SHUFFLED, SHUFFLED, within, control=True)


def labels_are_apart(first: Batch) -> bool:
    """Return whether it is certain that labels do not go through the model.

    Those of a model that computes its loss are shuffled together with its inputs, which changes
    nothing.

    Args:
        first: the first recorded batch.
    """
    kinds = {type(one) is Computed for one in first.loss_args if isinstance(one, Tensor | Computed)}
    if len(kinds) > 1:
        return True
    given = {digest(one) for _, one in leaves((first.args, first.kwargs))}
    return any(digest(one) not in given for _, one in leaves(first.loaded))


def _random(facts: Facts) -> Iterator[Change]:
    if facts.random:
        words = "other random numbers"
        yield Change(words, words, _other_random_numbers, control=True)


@contextmanager
def _in_precision(
    training: Changeable, models: list[nn.Module], wide: torch.dtype
) -> Iterator[None]:
    before = training.prepare
    training.prepare = partial(cast_batch, wide=wide)
    try:
        with in_precision(wide, models, training.optimizers):
            yield
    finally:
        training.prepare = before


# Restoring the recorded state sets the options of the optimizers back.
@contextmanager
def _scaled(training: Changeable, factor: float) -> Iterator[None]:
    for group in training.groups:
        group["lr"] = group["lr"] * factor
    yield


@contextmanager
def _with_eps(training: Changeable) -> Iterator[None]:
    for group in training.groups:
        if type(group.get("eps")) is float:
            group["eps"] = _EPS
    yield


@contextmanager
def _without_decay(training: Changeable) -> Iterator[None]:
    for group in training.groups:
        if "weight_decay" in group:
            group["weight_decay"] = 0.0
    yield


@contextmanager
def _clipped(training: Changeable) -> Iterator[None]:
    def clip(gradients: list[Tensor]) -> None:
        norm = torch.nn.utils.get_total_norm(gradients)
        for gradient in gradients:
            gradient.mul_((_CLIP / (norm + 1e-6)).clamp(max=1.0).to(gradient.device))

    training.before_update.append(clip)
    try:
        yield
    finally:
        training.before_update.remove(clip)


@contextmanager
def _cleared(training: Changeable) -> Iterator[None]:
    training.clears = True
    try:
        yield
    finally:
        training.clears = False


@contextmanager
def _without_dropout(dropouts: list[_DropoutNd]) -> Iterator[None]:
    # Restoring the recorded state sets the modes back.
    for one in dropouts:
        one.training = False
    yield


def _shuffled(value: Any, order: Tensor) -> Any:
    """Return a tensor with its samples in another order, the same for all arguments."""
    size = len(order)
    if isinstance(value, Tensor) and value.dim() and value.shape[0] == size:
        return value[order.to(value.device)]
    if isinstance(value, list) and len(value) == size and not any(True for _ in leaves(value)):
        return [value[place] for place in order.tolist()]
    return value


@contextmanager
def _other_random_numbers() -> Iterator[None]:
    torch.manual_seed(_SEED)
    random.seed(_SEED)
    np.random.seed(_SEED)
    yield


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class _Scales:
    """Mean and deviation of each feature of a model's arguments in one batch.

    Arguments of one shape share them, so that equal samples stay equal.

    Attributes:
        lowest: smallest input.
        highest: largest input.
        unusual: whether a mean or deviation is far from 0 and 1.
    """

    def __init__(self, batch: Batch) -> None:
        groups: dict[tuple[int, ...], list[Tensor]] = {}
        for _, one in leaves((batch.args, batch.kwargs)):
            if _is_input(one):
                groups.setdefault(tuple(one.shape[1:]), []).append(one.detach().float())
        self._known: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}
        self.lowest, self.highest, self.unusual = 0.0, 0.0, False
        for shape, tensors in groups.items():
            values = torch.cat(tensors)
            if not torch.isfinite(values).all():
                continue
            # Of images and sequences per channel or feature.
            kept = 1 if values.dim() != 3 else 2
            others = [place for place in range(values.dim()) if place != kept]
            mean = values.mean(others, keepdim=True)
            deviation = values.std(others, keepdim=True, correction=0)
            self.lowest = min(self.lowest, float(values.min()))
            self.highest = max(self.highest, float(values.max()))
            self.unusual |= bool((mean.abs() > _LARGEST).any() or (deviation > _LARGEST).any())
            self.unusual |= 0 < float(deviation.max()) < _SMALLEST
            deviation = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
            self._known[shape] = mean, deviation

    def normalized(self, value: Any) -> Any:
        """Return an input with mean 0 and deviation 1; any other value as it is."""
        if not isinstance(value, Tensor) or not _is_input(value):
            return value
        known = self._known.get(tuple(value.shape[1:]))
        if known is None:
            return value
        mean, deviation = (one.to(value.device) for one in known)
        return ((value - mean) / deviation).to(value.dtype)


def _is_input(value: Tensor) -> bool:
    return value.is_floating_point() and value.dim() > 1 and value.layout == torch.strided
