"""Replaying a snapshot of a Keras model: the step, its samples, and its operations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from vinedresser.capture.run.environment import versions
from vinedresser.frameworks.keras_.codec import digest
from vinedresser.frameworks.keras_.model_state import environment
from vinedresser.replay.comparing import compare, differing
from vinedresser.replay.keras_.batch import KerasBatch, arrays, selected
from vinedresser.replay.keras_.factory import KerasParts, build
from vinedresser.replay.keras_.recorded import recorded_step
from vinedresser.replay.keras_.running import KerasOutcome, KerasReplay
from vinedresser.replay.referenced import running_users_code
from vinedresser.replay.results import Bisection, Comparison, Located, SampleTensor
from vinedresser.replay.samples import breaking, inexact_layers
from vinedresser.snapshots.reading import Snapshot
from vinedresser.snapshots.record import SnapshotRecord

__all__ = ["ReplayedKeras", "bisect", "locate", "replay", "replay_with", "sample", "sample_of"]


@dataclass(frozen=True)
class ReplayedKeras:
    """A snapshot of a Keras model that was run again.

    Attributes:
        outcome: what it computed.
        comparison: how that compares with what was recorded.
    """

    replay: KerasReplay
    outcome: KerasOutcome
    comparison: Comparison


def replay(snapshot: Snapshot, factory: str, *, eager: bool = False) -> ReplayedKeras:
    """Run the step of a snapshot again.

    Args:
        factory: ``module:function``; see `vinedresser.replay.keras_.factory`.
        eager: whether graphs and functions of the program are run as they are written.

    Raises:
        ConfigError: the snapshot lacks something, or the factory builds something else.
        CorruptData: the snapshot is damaged.
        StoreError: the storage refused.
    """
    return replay_with(snapshot, build(factory), f"--factory {factory}", eager=eager)


def replay_with(snapshot: Snapshot, parts: KerasParts, whose: str, *, eager: bool) -> ReplayedKeras:
    """Run the step of a snapshot again with models that are there.

    Args:
        whose: what has built them, for messages.
        eager: see `replay`.

    Raises:
        ConfigError: the snapshot lacks something, or the models are others.
        CorruptData: the snapshot is damaged.
        StoreError: the storage refused.
    """
    again = KerasReplay(parts, recorded_step(snapshot), whose, eager)
    with running_users_code(whose):
        outcome = again.run()
    return ReplayedKeras(again, outcome, _compared(snapshot.record, again, outcome))


def bisect(replayed: ReplayedKeras) -> Bisection | None:
    """Find the samples that make a gradient non-finite; None if the samples are not known.

    Raises:
        ConfigError: the factory builds something else.
    """
    again = replayed.replay
    samples = again.samples
    if not samples or not replayed.outcome.broken:
        return None
    batches, reasons = len(again.step.batches), _inexact(again)
    return breaking(samples, lambda some: again.run(some).broken, batches=batches, inexact=reasons)


def locate(replayed: ReplayedKeras) -> tuple[Located | None, list[str]]:
    """Find the operation that makes the loss or a gradient non-finite, in an eager run.

    Returns:
        The operation, None if there is none; and the inputs and variables that are not finite
        already.

    Raises:
        ConfigError: the factory builds something else.
    """
    again = replayed.replay
    bad = _nonfinite_inputs(again)
    found: list[Located | None] = []
    scans: list[Any] = []

    @contextmanager
    def scanned() -> Iterator[None]:
        with _scan(again) as scan:
            scans.append(scan)
            yield

    outcome = again.run(within=scanned, eager=True)
    found = [scans[0].origin(value) for value in outcome.values.values()]
    known = [one for one in found if one is not None]
    return min(known, key=lambda one: one.number, default=None), bad


def sample(replayed: ReplayedKeras, number: int, row: int) -> list[SampleTensor]:
    """Return the tensors of one sample that hold numbers.

    Args:
        replayed: the step.
        number: number of its batch.
        row: index of the sample in it.
    """
    return sample_of(replayed.replay.step.batches[number], row)


def sample_of(batch: KerasBatch, row: int) -> list[SampleTensor]:
    """Return the tensors of one sample that hold numbers.

    Args:
        row: index of the sample in it.
    """
    return [
        SampleTensor(
            name,
            f"{one.dtype.name} {list(one.shape)}",
            digest(one),
            one.astype(np.float64).squeeze(),
        )
        for name, one in arrays(selected(batch, [row]))
        if one.dtype != object
    ]


def _scan(again: KerasReplay) -> Any:
    if keras.backend.backend() == "torch":
        from vinedresser.replay.factory import Parts
        from vinedresser.replay.locating import locate_in

        return locate_in(Parts(again.parts.models))
    from vinedresser.replay.keras_.locating import locate_in as locate_in_tensorflow

    return locate_in_tensorflow(again.parts.models)


def _nonfinite_inputs(again: KerasReplay) -> list[str]:
    found = [
        f"batch {number}, {name}"
        for number, batch in enumerate(again.step.batches)
        for name, one in arrays(batch)
        if one.dtype.kind in "fcV" and not np.isfinite(one).all()
    ]
    for model in again.step.models.values():
        found += [
            f"variable {path}"
            for path, one in model.variables.items()
            if one.dtype.kind in "fcV" and not np.isfinite(one).all()
        ]
    return found


def _compared(record: SnapshotRecord, again: KerasReplay, outcome: KerasOutcome) -> Comparison:
    backend = keras.backend.backend()
    now = versions(keras=keras.__version__, **{backend: _backend_version(backend)})
    differs = differing(record, now | environment(again.model))
    return compare(again.step, outcome, digest, differs)


def _backend_version(backend: str) -> str:
    if backend == "torch":
        import torch

        return str(torch.__version__)
    import tensorflow as tf

    return str(tf.__version__)


def _inexact(again: KerasReplay) -> list[str]:
    layers = [layer for model in again.parts.models.values() for layer in model._flatten_layers()]
    return inexact_layers(type(layer).__name__ for layer in layers)
