"""The recorded step as torch objects."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import Tensor

from vinedresser.errors import ConfigError, CorruptData
from vinedresser.frameworks.torch_.codec import TorchCodec
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.frameworks.torch_.nonfinite import all_finite
from vinedresser.frameworks.torch_.shards import has_shards, whole
from vinedresser.frameworks.torch_.step_inputs import trained_model
from vinedresser.replay.batch import Batch
from vinedresser.snapshots.reading import Snapshot
from vinedresser.snapshots.trees import LeftOut
from vinedresser.store.json_values import DAMAGE

__all__ = ["RecordedModel", "RecordedStep", "recorded_step"]

# Number of first steps in which weights are still about those of the beginning.
_BEGINNING = 10


@dataclass(frozen=True)
class RecordedModel:
    """The recorded state of one model.

    Attributes:
        parameters: parameters before the update, by path.
        buffers: buffers before the forward, by path.
        in_eval: paths of the modules in eval mode.
        gradients: SHA-256 and number of non-finite entries of each gradient, by path.
        optimizers: type, state, schedulers, and whether it is the one whose step was next.
    """

    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]
    in_eval: list[str]
    gradients: dict[str, dict[str, Any]]
    optimizers: list[dict[str, Any]]


@dataclass(frozen=True)
class RecordedStep:
    """A recorded step.

    Attributes:
        models: the models by name.
        batches: the inputs of each call of the trained model.
        losses: values of the losses of each call.
        random: states of the random generators.
        trained: name of the model whose update was next.
        number: number of the step in the run, from 0.
    """

    models: dict[str, RecordedModel]
    batches: list[Batch]
    losses: list[list[Tensor]]
    random: dict[str, Any]
    trained: str
    number: int

    @property
    def beginning(self) -> bool:
        """Whether it is one of the first steps of the run."""
        return self.number < _BEGINNING

    @property
    def spoiled(self) -> str:
        """Name of a parameter that is not finite before the step; "" if there is none."""
        return next(
            (
                f"{name}.{path}".lstrip(".")
                for name, model in self.models.items()
                for path, one in model.parameters.items()
                if isinstance(one, Tensor) and not all_finite([one])
            ),
            "",
        )

    @property
    def scheduled(self) -> bool:
        """Whether a learning rate follows a schedule."""
        return any(
            optimizer["schedulers"]
            for each in self.models.values()
            for optimizer in each.optimizers
        )


def recorded_step(snapshot: Snapshot, *, loaded: bool = False) -> RecordedStep:
    """Return the step of a snapshot.

    Args:
        loaded: whether the batches that data loaders returned are needed; otherwise they are None
            if they could not be stored, such as `bytes`.

    Raises:
        ConfigError: its inputs are missing or could not be stored.
        CorruptData: it is damaged.
        StoreError: the storage refused.
    """
    record, codec = snapshot.record, TorchCodec()
    if record.framework != "torch":
        raise ConfigError(f"{snapshot.location}: only steps of torch can be run again")
    contents = snapshot.value(record.contents.get("models"), codec)
    shared = snapshot.value(record.contents.get("shared"), codec)
    # The other ranks' contents, whose devices this machine may lack.
    others = [
        one.value(one.record.contents.get("models"), TorchCodec(on_host=True))
        for one in (_shared_by(snapshot) if has_shards(contents) else [])
    ]
    try:
        models = {
            name: _model(whole([_state(each[name]) for each in (contents, *others)]))
            for name in contents
        }
        trained = trained_model(contents)
        calls = contents[trained]["calls"]
        batches = [
            Batch(
                call["args"],
                call["kwargs"],
                call["losses"][-1]["arguments"] if call["losses"] else (),
                call["loaded"],
            )
            for call in calls
        ]
        losses = [
            [one for each in call["losses"] for _, one in leaves(each["value"])] for call in calls
        ]
        random = dict(shared["random"])
    except (*DAMAGE, StopIteration) as error:
        raise CorruptData(f"{snapshot.location}: not the contents of a step: {error!r}") from error
    if has_shards(calls):
        raise ConfigError(f"{snapshot.location}: it cannot be run again: an input is distributed")
    unloaded = set()
    calls_at = f"models.{trained}.calls."
    for path, why in record.left_out.items():
        if path.startswith(calls_at):
            found = re.match(r"(\d+)\.loaded\b", path.removeprefix(calls_at))
            if found is None or loaded:
                raise ConfigError(f"{snapshot.location}: it cannot be run again: {path}: {why}")
            unloaded.add(int(found[1]))
    batches = [
        replace(batch, loaded=None) if number in unloaded else batch
        for number, batch in enumerate(batches)
    ]
    if not batches:
        why = "; ".join(record.inexact) or "none were seen"
        raise ConfigError(f"{snapshot.location}: it has no inputs: {why}")
    return RecordedStep(models, batches, losses, random, trained, record.step)


def _shared_by(snapshot: Snapshot) -> list[Snapshot]:
    """Return the snapshots of all other ranks.

    Raises:
        ConfigError: a rank has no snapshot of the step.
        StoreError: the storage refused.
    """
    record, peers = snapshot.record, snapshot.peers
    there = {record.rank, *(one.record.rank for one in peers)}
    missing = next((rank for rank in range(record.world_size) if rank not in there), None)
    if missing is not None:
        raise ConfigError(
            f"{snapshot.location}: it cannot be run again: each rank has a part of each parameter, "
            f"and rank {missing} kept no snapshot of step {record.step}"
        )
    return peers


def _state(model: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of a model but the calls in the step."""
    return {one.name: model[one.name] for one in fields(RecordedModel)}


def _model(state: dict[str, Any]) -> RecordedModel:
    found = RecordedModel(**state)
    for tensors in (found.parameters, found.buffers):
        for name, value in tensors.items():
            if not isinstance(value, Tensor | LeftOut):
                raise TypeError(f"{name} is not a tensor")
    return found
