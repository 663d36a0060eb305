"""Replaying a snapshot in the script that trained: the step, its samples, its operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vinedresser.errors import ConfigError
from vinedresser.replay.batch import Batch, batch_size
from vinedresser.replay.recorded import RecordedStep, recorded_step
from vinedresser.replay.results import Bisection, Comparison, Located, Outcome, SampleTensor
from vinedresser.replay.samples import any_sample, breaking, numbered
from vinedresser.replay.script.running import run_script
from vinedresser.replay.script.settings import ScriptResult
from vinedresser.replay.splitting import PartOutcome, Split, parts_of, recorded_losses
from vinedresser.replay.stepping import sample_of
from vinedresser.replay.wider import Wider
from vinedresser.snapshots.reading import Snapshot

__all__ = ["ScriptReplayed", "bisect", "locate", "replay", "run_split", "run_wider", "sample"]

_Sample = tuple[int, int]


@dataclass(frozen=True)
class ScriptReplayed:
    """A snapshot that was run again in the script that trained.

    Attributes:
        command: the script and its arguments.
        eager: see `replay`.
        result: what the script computed.
    """

    snapshot: Snapshot
    command: list[str]
    step: RecordedStep
    eager: bool
    result: ScriptResult

    @property
    def comparison(self) -> Comparison:
        """How the step compares with the recorded one."""
        return self.result.comparison

    @property
    def notes(self) -> list[str]:
        """What may make the step differ from the recorded one, in words."""
        return self.result.notes

    @property
    def outcome(self) -> Outcome:
        """What the step computed, without the digests of the gradients."""
        return self.result.outcome


def replay(snapshot: Snapshot, command: Sequence[str], *, eager: bool = False) -> ScriptReplayed:
    """Run a script up to its first update, with the recorded step in the place of its first.

    The script runs in a process of its own, which ends before the update; what the script does
    before its first step, it does again.

    Args:
        command: path of the Python script, and its arguments as for the training.
        eager: whether what `torch.compile` has compiled is run as it is written.

    Raises:
        ConfigError: the snapshot lacks something, or the script does not come to such a step.
        CorruptData: the snapshot is damaged.
        LaunchError: the script does not exist.
        StoreError: the storage refused.
    """
    step = recorded_step(snapshot, loaded=True)
    result = run_script(snapshot, command, eager=eager)
    return ScriptReplayed(snapshot, list(command), step, eager, result)


def bisect(replayed: ScriptReplayed) -> Bisection | None:
    """Find the samples that make a gradient non-finite; None if the samples are not known.

    Each run starts the script again; see `_breaking_of_calls` for a step with several calls of
    the model.

    Raises:
        ConfigError: the script does not come to such a step.
    """
    step, result = replayed.step, replayed.result
    samples = numbered(batch_size(batch) for batch in step.batches)
    if not samples or not replayed.outcome.broken:
        return None

    def run(some: Sequence[tuple[int, int]]) -> ScriptResult:
        return run_script(
            replayed.snapshot, replayed.command, samples=list(some), eager=replayed.eager
        )

    spoiled = step.spoiled
    if spoiled:
        return any_sample(samples, len(step.batches), spoiled)
    if len(step.batches) > 1:
        return _breaking_of_calls(step.batches, result, run)
    return breaking(
        samples, lambda some: bool(run(some).nonfinite), batches=1, inexact=result.inexact
    )


def locate(replayed: ScriptReplayed) -> tuple[Located | None, list[str]]:
    """Find the operation that breaks the step; see `vinedresser.replay.stepping.locate`.

    Raises:
        ConfigError: the script does not come to such a step.
    """
    found = run_script(replayed.snapshot, replayed.command, locate=True, eager=replayed.eager)
    return found.located, found.inputs


def run_wider(replayed: ScriptReplayed, dtype: str) -> Wider:
    """Run a step in a wider precision; see `vinedresser.replay.wider.run_wider`.

    Raises:
        ConfigError: the script does not come to such a step.
    """
    command, eager = replayed.command, replayed.eager
    found = run_script(replayed.snapshot, command, dtype=dtype, eager=eager)
    return Wider(dtype, found.outcome, replayed.outcome.broken)


def run_split(
    snapshot: Snapshot, command: Sequence[str], number: int, *, eager: bool = False
) -> Split:
    """Run the batch of a step in parts; see `vinedresser.replay.splitting.run_split`.

    Each part starts the script.

    Raises:
        ConfigError: the step has several batches, of which the script always takes all, or samples
            that cannot be told apart; the script does not come to such a step.
    """
    step = recorded_step(snapshot, loaded=True)
    if len(step.batches) > 1:
        raise ConfigError(
            "--split: not with --script if a step has several batches, of which the script always "
            "takes all; use --factory"
        )
    reasons: list[str] = []

    def run(samples: list[tuple[int, int]]) -> PartOutcome:
        found = run_script(snapshot, command, samples=samples, eager=eager)
        reasons[:] = found.inexact
        names = [f"{name}.{path}".lstrip(".") for name, path, _ in found.nonfinite]
        return (found.losses or [math.nan])[0], names

    parts = parts_of(step, number, run)
    return Split(parts, recorded_losses(step), reasons)


def sample(replayed: ScriptReplayed, number: int, row: int) -> list[SampleTensor]:
    """Return the tensors of one sample; see `vinedresser.replay.stepping.sample`."""
    return sample_of(replayed.step.batches[number], row)


def _breaking_of_calls(
    batches: Sequence[Batch],
    whole: ScriptResult,
    run: Callable[[Sequence[_Sample]], ScriptResult],
) -> Bisection | None:
    """Find the samples that break a step with several calls of the model, all of which are made.

    If each call has a batch and a backward pass of its own, as for accumulated gradients, samples
    of the batch after which gradients are not finite first are left out, and the other batches stay
    whole. Otherwise the calls get the same rows: those of a sentence in a decoder that is called
    for each word, or those of a real and a generated image.

    Args:
        batches: the inputs of each call.
        whole: what the whole step has computed.
        run: runs the step with some samples, at least one of each batch.

    Returns:
        The samples; rows are those of the first batch if all calls get them. None if the calls have
        different numbers of rows.
    """
    samples = numbered(batch_size(batch) for batch in batches)
    loaded = {batch.loaded is not None for batch in batches}
    if len(whole.finite) == len(batches) and len(loaded) == 1:
        number = whole.finite.index(False)
        others = [sample for sample in samples if sample[0] != number]

        def breaks_alone(some: Sequence[_Sample]) -> bool:
            finite = run(sorted([*others, *some])).finite
            return False in finite and finite.index(False) == number

        own = [sample for sample in samples if sample[0] == number]
        found = breaking(own, breaks_alone, batches=len(batches), inexact=whole.inexact)
        return replace(found, total=len(samples))
    sizes = {batch_size(batch) for batch in batches}
    if len(sizes) > 1:
        return None

    def breaks(some: Sequence[_Sample]) -> bool:
        rows = [row for _, row in some]
        return bool(run([(call, row) for call in range(len(batches)) for row in rows]).nonfinite)

    return breaking(numbered(sizes), breaks, batches=1, inexact=whole.inexact)
