"""A change of a training, and what is known for the choice of changes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from vinedresser.replay.what_if.functions_seen import Network

__all__ = ["Change", "Facts"]


@dataclass(frozen=True)
class Change:
    """A change of a training.

    Attributes:
        kind: changes of one kind are alternatives, such as two learning rates.
        words: the change in words, such as "learning rate 0.02 instead of 0.2".
        within: makes the context in which the training is changed, entered in its recorded state.
        control: whether it should cure nothing.
        values: the value before and after, such as (0.2, 0.02); () if it is not that of a number.
        network: it changes what the network computes at first, so that the first loss is another:
            a cure falls from there, too.
        learns: it also cures if the network learns from its inputs, and only with the change.
    """

    kind: str
    words: str
    within: Callable[[], AbstractContextManager[None]]
    control: bool = False
    values: tuple[float, ...] = ()
    network: bool = False
    learns: bool = False


@dataclass(frozen=True)
class Facts:
    """What is known about the steps, for the choice of changes.

    Attributes:
        nonfinite: a loss or gradient was not finite.
        at_once: it was so in the first step: changes of the update come too late.
        pace: share of their norm by which the weights move in a step, if the training stands still;
            else None.
        norm: largest norm of the gradients.
        half: dtype of half precision that the step uses, or None.
        accumulates: gradients of a step are added to those of the step before.
        random: the step draws random numbers.
        scheduled: the learning rate follows a schedule.
        beginning: the training has just begun: its weights are still about those it began with.
        negative: a loss of the unchanged steps is negative.
        network: what the model computes, if it is the only one and was seen; else None.
    """

    nonfinite: bool
    at_once: bool
    pace: float | None
    norm: float
    half: torch.dtype | None
    accumulates: bool
    random: bool
    scheduled: bool
    beginning: bool = False
    negative: bool = False
    network: Network | None = None
