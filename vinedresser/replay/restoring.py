"""Putting models, optimizers and random generators into a recorded state."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vinedresser.errors import ConfigError, CorruptData, did_you_mean
from vinedresser.frameworks.torch_.names import Names, unwrapped
from vinedresser.frameworks.torch_.random_states import set_states
from vinedresser.replay.factory import Parts
from vinedresser.replay.recorded import RecordedModel, RecordedStep
from vinedresser.snapshots.record import SnapshotRecord
from vinedresser.snapshots.trees import LeftOut
from vinedresser.store.json_values import DAMAGE

__all__ = ["adopt_environment", "restore", "restore_model"]


def adopt_environment(record: SnapshotRecord) -> None:
    """Set number of threads, determinism and precision as they were recorded."""
    found = record.environment
    threads = found.get("threads")
    if type(threads) is int and 0 < threads <= 1024:
        torch.set_num_threads(threads)
    if found.get("deterministic algorithms") is True:
        torch.use_deterministic_algorithms(True)
    precision = found.get("float32 matmul precision")
    if precision in ("highest", "high", "medium"):
        torch.set_float32_matmul_precision(precision)


def restore(parts: Parts, step: RecordedStep, whose: str) -> None:
    """Put everything into the state at the beginning of a step, without gradients.

    Args:
        parts: result of the factory.
        whose: name of the factory, for messages.

    Raises:
        ConfigError: the factory builds another model or optimizer.
        CorruptData: the recorded states are not valid.
    """
    if parts.models.keys() != step.models.keys():
        raise ConfigError(
            f"{whose}: builds the models {sorted(parts.models)}; the snapshot has "
            f"{sorted(step.models)}; return a dictionary of them by name"
        )
    for name, model in parts.models.items():
        restore_model(model, step.models[name], whose)
    recorded = [one for each in step.models.values() for one in each.optimizers]
    for optimizer, one in zip(parts.optimizers, recorded, strict=False):
        _restore_optimizer(optimizer, one, whose)
    _restore_random(step.random)


def restore_model(model: nn.Module, recorded: RecordedModel, whose: str) -> None:
    """Put one model into its recorded state, without gradients.

    Args:
        whose: name of the factory, for messages.

    Raises:
        ConfigError: the factory builds another model.
    """
    names = Names(unwrapped(model))
    parameters: dict[str, Tensor] = {
        parameter.path: parameter.value for parameter in names.parameters()
    }
    buffers = {name.partition("/")[2]: value for name, value in names.buffers()}
    for kind, ours, theirs in (
        ("parameter", parameters, recorded.parameters),
        ("buffer", buffers, recorded.buffers),
    ):
        _check_names(kind, ours, theirs, whose)
        with torch.no_grad():
            for name, value in theirs.items():
                _copy(kind, name, ours[name], value, whose)
    for parameter in parameters.values():
        parameter.grad = None
    in_eval = set(recorded.in_eval)
    for path, module in names.modules():
        module.training = ("" if path == names.root else path) not in in_eval


def _check_names(kind: str, ours: dict[str, Tensor], theirs: dict[str, Tensor], whose: str) -> None:
    for name in theirs:
        if name not in ours:
            near = did_you_mean(name, ours)
            raise ConfigError(
                f"{whose}: builds another model: it has no {kind} {name}, which the snapshot has"
                f"{near}"
            )
    for name in ours:
        if name not in theirs:
            raise ConfigError(
                f"{whose}: builds another model: its {kind} {name} is not in the snapshot"
            )


def _copy(kind: str, name: str, ours: Tensor, value: Tensor | LeftOut, whose: str) -> None:
    if isinstance(value, LeftOut):
        raise ConfigError(f"the snapshot lacks the {kind} {name}: {value.why}")
    if ours.shape != value.shape or ours.dtype != value.dtype:
        raise ConfigError(
            f"{whose}: builds another model: {name} is {ours.dtype} {list(ours.shape)}; in the "
            f"snapshot it is {value.dtype} {list(value.shape)}"
        )
    # A script may have a graph that uses it, whose gradients nobody will use: no error there.
    ours.data.copy_(value)


def _restore_optimizer(optimizer: Optimizer, recorded: dict[str, Any], whose: str) -> None:
    if type(optimizer).__name__ != recorded["type"]:
        raise ConfigError(
            f"{whose}: builds another optimizer: {type(optimizer).__name__}; the snapshot has "
            f"{recorded['type']}"
        )
    try:
        # A copy: an optimizer that steps changes the tensors of its state.
        optimizer.load_state_dict(deepcopy(recorded["state"]))
    except DAMAGE as error:
        raise ConfigError(f"{whose}: builds another optimizer: {error}") from error


def _restore_random(states: dict[str, Any]) -> None:
    try:
        set_states(states)
    except (*DAMAGE, AssertionError, RuntimeError) as error:
        raise CorruptData(f"the recorded random states are not valid: {error}") from error
