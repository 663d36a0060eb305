"""Replaying a snapshot: the step, its samples, and its operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from vinedresser.frameworks.torch_.codec import digest
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.replay.batch import Batch, selected
from vinedresser.replay.comparing import adopt_environment, compare
from vinedresser.replay.factory import build
from vinedresser.replay.locating import locate_in, nonfinite_inputs, origin_of_gradients
from vinedresser.replay.recorded import recorded_step
from vinedresser.replay.referenced import running_users_code
from vinedresser.replay.results import Bisection, Comparison, Located, SampleTensor
from vinedresser.replay.running import Outcome, Replay
from vinedresser.replay.samples import any_sample, breaking
from vinedresser.snapshots.reading import Snapshot

__all__ = ["Replayed", "bisect", "inexact", "locate", "prepared", "replay", "sample", "sample_of"]


@dataclass(frozen=True)
class Replayed:
    """A snapshot that was run again.

    Attributes:
        replay: runs it again.
        outcome: what it computed.
        comparison: how that compares with what was recorded.
    """

    replay: Replay
    outcome: Outcome
    comparison: Comparison


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
        snapshot: the snapshot.
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
    return Replayed(again, outcome, compare(snapshot.record, again.step, outcome))


def bisect(replayed: Replayed) -> Bisection | None:
    """Find the samples that make a gradient non-finite; None if the samples are not known.

    Raises:
        ConfigError: the factory builds something else.
    """
    again = replayed.replay
    samples = again.samples
    if not samples or not replayed.outcome.broken:
        return None

    def breaks(some: Sequence[tuple[int, int]]) -> bool:
        return again.run(some).broken

    batches, spoiled = len(again.step.batches), again.step.spoiled
    if spoiled:
        return any_sample(samples, batches, spoiled)
    return breaking(samples, breaks, batches=batches, inexact=inexact(again))


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
        batch: its batch.
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
    modules = [module for one in again.parts.models.values() for module in one.modules()]
    names = {type(one).__name__ for one in modules if one.training}
    found = []
    if any("BatchNorm" in name for name in names):
        found.append("batch normalization computes other statistics")
    if any("Dropout" in name for name in names):
        found.append("dropout draws other masks")
    return found
