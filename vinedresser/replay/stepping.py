"""Replaying a snapshot: the step, its samples, and its operations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from vinedresser.capture.run.environment import versions
from vinedresser.errors import ConfigError
from vinedresser.frameworks.torch_.codec import digest
from vinedresser.frameworks.torch_.environment import environment, present_device
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.replay.batch import Batch, selected
from vinedresser.replay.comparing import compare, differing
from vinedresser.replay.factory import build
from vinedresser.replay.locating import locate_in, nonfinite_inputs, origin_of_gradients
from vinedresser.replay.recorded import RecordedStep, recorded_step
from vinedresser.replay.referenced import running_users_code
from vinedresser.replay.restoring import adopt_environment
from vinedresser.replay.results import Bisection, Comparison, Located, Outcome, SampleTensor
from vinedresser.replay.running import Replay
from vinedresser.replay.samples import any_sample, breaking, inexact_layers
from vinedresser.snapshots.reading import Snapshot
from vinedresser.snapshots.record import SnapshotRecord

__all__ = [
    "Replayed",
    "bisect",
    "compared",
    "inexact",
    "locate",
    "prepared",
    "replay",
    "sample",
    "sample_of",
]


@dataclass(frozen=True)
class Replayed:
    """A snapshot that was run again.

    Attributes:
        outcome: what it computed.
        comparison: how that compares with what was recorded.
    """

    replay: Replay
    outcome: Outcome
    comparison: Comparison

    @property
    def step(self) -> RecordedStep:
        """The recorded step."""
        return self.replay.step


def prepared(snapshot: Snapshot, factory: str, *, eager: bool = False) -> Replay:
    """Build the model and the step of a snapshot, without running it; see `replay`.

    Raises:
        ConfigError: the snapshot lacks something, or the factory builds something else.
        CorruptData: the snapshot is damaged.
        StoreError: the storage refused.
    """
    step = recorded_step(snapshot)
    adopt_environment(snapshot.record)
    return Replay(build(factory), step, f"--factory {factory}", eager)


def replay(snapshot: Snapshot, factory: str, *, eager: bool = False) -> Replayed:
    """Run the step of a snapshot again.

    Args:
        factory: ``module:function``; see `vinedresser.replay.factory`.
        eager: whether what `torch.compile` has compiled is run as it is written.

    Raises:
        ConfigError: the snapshot lacks something, or the factory builds something else.
        CorruptData: the snapshot is damaged.
        StoreError: the storage refused.
    """
    again = prepared(snapshot, factory, eager=eager)
    with running_users_code(again.whose):
        outcome = again.run()
    return Replayed(again, outcome, compared(snapshot.record, again.step, outcome))


def compared(record: SnapshotRecord, step: RecordedStep, outcome: Outcome) -> Comparison:
    """Compare the outcome of a step, run with the whole batch, with what was recorded.

    Raises:
        ConfigError: the snapshot is of a device that this machine lacks.
    """
    try:
        device = present_device(record.environment.get("device", "cpu"))
    except ValueError as error:
        raise ConfigError(f"the snapshot cannot be compared: {error}") from error
    now = versions(torch=torch.__version__) | environment(device)
    return compare(step, outcome, digest, differing(record, now))


def bisect(replayed: Replayed) -> Bisection | None:
    """Find the samples that make a gradient non-finite; None if the samples are not known.

    Raises:
        ConfigError: the factory builds something else.
    """
    again = replayed.replay
    samples = again.samples
    if not samples or not replayed.outcome.broken:
        return None
    batches, spoiled = len(again.step.batches), again.step.spoiled
    if spoiled:
        return any_sample(samples, batches, spoiled)
    reasons = inexact(again)
    return breaking(samples, lambda some: again.run(some).broken, batches=batches, inexact=reasons)


def locate(replayed: Replayed) -> tuple[Located | None, list[str]]:
    """Find the operation that makes the loss or a gradient non-finite.

    Returns:
        The operation, None if there is none; and the inputs and parameters that are not finite
        already.

    Raises:
        ConfigError: the factory builds something else.
    """
    again = replayed.replay
    bad = nonfinite_inputs(again.parts, again.step.batches)
    found: list[Located | None] = []

    @contextmanager
    def scanned() -> Iterator[None]:
        with locate_in(again.parts) as scan:
            yield
        found.append(origin_of_gradients(scan, again.parts))

    again.run(within=scanned)
    return found[0], bad


def sample(replayed: Replayed, number: int, row: int) -> list[SampleTensor]:
    """Return the tensors of one sample.

    Args:
        replayed: the step.
        number: number of its batch.
        row: index of the sample in it.
    """
    return sample_of(replayed.replay.step.batches[number], row)


def sample_of(batch: Batch, row: int) -> list[SampleTensor]:
    """Return the tensors of one sample.

    Args:
        row: index of the sample in it.
    """
    one = selected(batch, [row])
    given = {"input": (one.args, one.kwargs), "loss": one.loss_args, "loaded": one.loaded}
    return [
        SampleTensor(
            name,
            f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}",
            digest(tensor),
            tensor.detach().cpu().double().numpy().squeeze(),
        )
        for word, value in given.items()
        for name, tensor in leaves(value, word)
    ]


def inexact(again: Replay) -> list[str]:
    """Return why a part of a batch computes something else than the whole, in words."""
    modules = [module for model in again.parts.models.values() for module in model.modules()]
    return inexact_layers(type(one).__name__ for one in modules if one.training)
