"""Views of snapshots, and of a replay: how it compares, what breaks it, what was tried on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from vinedresser.cli.views.console import console, plain_table, say
from vinedresser.replay.results import Bisection, Comparison, Located, SampleTensor
from vinedresser.replay.what_if.results import WhatIf, course_words
from vinedresser.snapshots.record import REASONS, SnapshotRecord

if TYPE_CHECKING:
    from vinedresser.replay.splitting import Split
    from vinedresser.replay.wider import Wider

__all__ = [
    "print_bisection",
    "print_located",
    "print_notes",
    "print_replayed",
    "print_split",
    "print_what_if",
    "print_wider",
    "snapshot_table",
]

# Names and values shown, and the size up to which a sample is drawn as a picture.
_MOST_NAMES = 5
_MOST_VALUES = 16
_WIDEST = 64
_SHADES = " .:-=+*#%@"


def print_replayed(
    record: SnapshotRecord,
    found: Comparison,
    losses_now: Sequence[Any],
    nonfinite: Iterable[tuple[str, str]],
) -> None:
    """Print how a replay compares with the recorded step.

    Args:
        losses_now: values of the losses, scalars.
        nonfinite: model and path of each gradient that is not finite.
    """
    value = "".join(f" {float(one):.6g}" for one in losses_now[:1])
    say(f"step {record.step}   {found.told(f'loss{value}:')}")
    for name in found.different[:_MOST_NAMES]:
        say(f"  different: {name}")
    for name, (then, now) in found.environment.items():
        say(f"  environment: {name} {now}, when recorded {then}")
    if not found.exact:
        for one in record.inexact:
            say(f"  inexact: {one}")
    bad = [f"{model}.{path}".lstrip(".") for model, path in nonfinite]
    if bad:
        others = f" and {len(bad) - 1} other gradients" if len(bad) > 1 else ""
        say(f"  not finite: {bad[-1]}{others}")
    else:
        say("  all gradients are finite")


def print_notes(notes: Iterable[str], *, exact: bool) -> None:
    """Print what may make a step differ from the recorded one, if it does."""
    for one in () if exact else notes:
        say(f"  inexact: {one}")


def print_wider(found: Wider) -> None:
    """Print what a step computes in a wider precision."""
    value = "".join(f" loss {float(loss):.6g}," for loss in found.outcome.losses[:1])
    say(f"in {found.dtype}:{value} {found.words}")


def print_split(record: SnapshotRecord, found: Split) -> None:
    """Print what a step computes in parts."""
    for place, recorded in enumerate(found.recorded):
        of = f" of batch {place}" if len(found.recorded) > 1 else ""
        known = "not recorded" if recorded is None else f"{recorded:.6g} in the training"
        say(f"step {record.step}   loss{of} in parts {found.losses(place)[0]:.6g}; {known}")
    compared = {True: "the same but for rounding", False: "different", None: "not comparable"}
    say(f"  {len(found.parts)} parts: the loss is {compared[found.same]}")
    for reason in found.inexact:
        say(f"  inexact: in parts, {reason}")
    bad = [part for part in found.parts if part.nonfinite]
    for one in bad:
        batch = f" of batch {one.batch}" if len(found.recorded) > 1 else ""
        names = ", ".join(one.nonfinite[:_MOST_NAMES])
        say(f"  not finite with samples {one.first} to {one.last}{batch}: {names}")
    if not bad:
        say("  all gradients are finite")


def print_located(found: Located | None, inputs: list[str], *, broken: bool) -> None:
    """Print the operation that makes a gradient non-finite."""
    for name in inputs[:_MOST_NAMES]:
        say(f"not finite before the step: {name}")
    if found is None:
        if broken and not inputs:
            say("operation: not found; the values come from outside of torch's operations")
        return
    say(f"operation: {found.words}")
    for number, one in enumerate(found.inputs):
        say(f"  input {number}   {one}")
    if found.place.words:
        say(f"  {found.place.words}")
        say(f"    {found.place.text}")


def print_bisection(
    bisection: Bisection | None,
    sample: Callable[[int, int], list[SampleTensor]],
    *,
    broken: bool,
) -> None:
    """Print the samples that break a step.

    Args:
        bisection: what was found; None if the step does not break, or its samples are not known.
        sample: returns the tensors of a sample, by number of the batch and row.
        broken: whether the step breaks.
    """
    if bisection is None:
        unknown = "the inputs of the step have no common number of samples"
        say(f"samples: {unknown if broken else 'the step does not break'}")
        return
    say(bisection.words)
    if not bisection.found.complete:
        say("  there may be a smaller set")
    for one in bisection.inexact:
        say(f"  inexact: with fewer samples, {one}")
    if bisection.refused:
        say(f"  with some of the samples the step fails: {bisection.refused.splitlines()[0]}")
    for origin in bisection.origins:
        say(f"  {origin.command}")
    for number, row in () if bisection.whole else bisection.samples:
        seen: set[str] = set()
        for tensor in sample(number, row):
            if tensor.digest not in seen:
                seen.add(tensor.digest)
                _print_tensor(tensor)


def _print_tensor(tensor: SampleTensor) -> None:
    values = tensor.values
    say(f"  {tensor.name}   {tensor.kind}")
    finite = values[np.isfinite(values)]
    if values.size <= _MOST_VALUES:
        say(f"    {np.array2string(values, precision=4, max_line_width=96)}")
        return
    ranges = f"from {finite.min():g} to {finite.max():g}" if finite.size else "no finite value"
    say(f"    {ranges}; {values.size - finite.size} not finite; {int((values == 0).sum())} zero")
    picture = values[0] if values.ndim == 3 else values
    if values.ndim == 1 and int(values.size**0.5) ** 2 == values.size:
        # Such as an image that was flattened.
        picture = values.reshape(int(values.size**0.5), -1)
    if picture.ndim == 2 and min(picture.shape) >= 4 and max(picture.shape) <= _WIDEST:
        for line in _drawn(picture):
            console.print(f"    {line}", soft_wrap=True)


def _drawn(picture: NDArray[np.float64]) -> list[str]:
    """Return an image [height, width] as lines of characters, dark to light; ? is not finite."""
    finite = picture[np.isfinite(picture)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    scale = (len(_SHADES) - 1) / (high - low) if high > low else 0.0
    return [
        "".join(
            2 * (_SHADES[int((value - low) * scale)] if np.isfinite(value) else "?")
            for value in row
        ).rstrip()
        for row in picture
    ]


def print_what_if(found: WhatIf) -> None:
    """Print the trials as a table, and what follows from them."""
    repeated = "the same batch each time" if found.batches == 1 else f"{found.batches} batches"
    say(f"what if: {found.steps} steps from here, {repeated}")
    say(f"  unchanged: {course_words(found.unchanged)}")
    if found.trials:
        say(f"  symptom: {found.symptom}")
        table = plain_table()
        for name in ("  change", "result", ""):
            table.add_column(name, no_wrap=True)
        for trial in found.trials:
            table.add_row(f"  {trial.change}", course_words(trial.course), found.verdict(trial))
        console.print(table)
    if found.not_tried:
        say(f"  no time to try: {'; '.join(found.not_tried)}")
    say(f"tried: {found.conclusion}")


def snapshot_table(records: Iterable[SnapshotRecord]) -> Table:
    """Return a table of snapshots."""
    table = plain_table()
    for name in ("snapshot", "reason", "taken", "MiB", "missing"):
        table.add_column(name, justify="right" if name == "MiB" else "left", no_wrap=True)
    for record in records:
        table.add_row(
            f"{SnapshotRecord.KEY}/{record.name}",
            REASONS[record.reason],
            time.strftime("%d %b %H:%M:%S", time.localtime(record.time)),
            f"{record.bytes / 2**20:.1f}",
            str(len(record.left_out)) if record.left_out else "-",
        )
    return table
