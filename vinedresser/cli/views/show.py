"""Contents of a run, and values or pictures of one tensor or scalar."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.cli.views.console import console, say
from vinedresser.errors import ConfigError, UnknownStep, UnknownTensor, did_you_mean
from vinedresser.explain.proofs import proof_of
from vinedresser.queries.stored.streams import streams
from vinedresser.store.collections.schedule import SaveConfig
from vinedresser.store.outputs import outputs_note
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.series import Column
from vinedresser.store.records import lost_records, name_at
from vinedresser.store.reductions import REDUCTIONS, reduce_array
from vinedresser.store.step_record import MODES, Mode

__all__ = ["draw_name", "mode_of", "show_name", "show_run"]

# Rows of a long series that are printed; `run.scalars(...).to_pandas()` has all.
_MOST_ROWS = 20


def show_run(run: Run) -> None:
    """Print the state of a run, its collections, and a line per tensor and scalar."""
    status = run.status
    steps = run.steps("train")
    say(f"{name_at(run.path)}   {status.state}   {status.reason}".rstrip())
    if run.info.framework:
        version = run.info.versions.get(run.info.framework, "")
        say(f"  {run.info.framework} {version}   {len(steps)} steps captured")
    if note := run.info.thinned_note:
        say(f"  {note}")
    rows = [_tensor_row(run, name) for name in run.tensor_names()]
    for name, modes in _scalar_modes(run).items():
        counts = sum(len(run.scalars(f"^{re.escape(name)}$", mode=mode)[name]) for mode in modes)
        rows.append(_Row(name, "scalar", counts, ", ".join(modes), 8 * counts))
    for stream in streams(run).values():
        name, query, every, answers, extent = stream.summary
        say(f"  stream {name}   {query}   per {every}   {answers} answers, steps {extent}")
    faults: list[str] = []
    if outputs := outputs_note(run.storage, faults):
        say(f"  outputs: {outputs}")
    if proof := proof_of(run.storage, faults):
        say(f"  tried: {proof}")
    if lost := lost_records(run.storage):
        say(f"  {lost} records lost (queue or disk full)", style="red")
    # Reading the values and the findings reveals damage.
    run.findings()
    for problem in (*faults, *run.damage(status)):
        say(f"  {problem}", style="red")
    console.print(_collections(run, rows))
    console.print(_tensors(rows))


class _Row(NamedTuple):
    """A row about one tensor or scalar."""

    name: str
    shape: str
    steps: int
    kept: str
    size: int


def _tensors(rows: list[_Row]) -> Table:
    """Return a table of tensors and scalars, with a section for each kind."""
    table = Table(header_style="bold")
    for heading, right in (("name", 0), ("shape", 0), ("steps", 1), ("kept", 0), ("bytes", 1)):
        table.add_column(heading, justify="right" if right else "left")
    kind = ""
    for row in rows:
        if kind and not row.name.startswith(f"{kind}/"):
            table.add_section()
        kind = row.name.partition("/")[0]
        table.add_row(row.name, row.shape, str(row.steps), row.kept, f"{row.size:,}")
    return table


def _collections(run: Run, rows: list[_Row]) -> Table:
    """Return a table of the run's collections: contents, size and schedule."""
    table = Table(header_style="bold")
    for heading, right in (("collection", 0), ("names", 1), ("bytes", 1), ("saved", 0)):
        table.add_column(heading, justify="right" if right else "left")
    config = CaptureConfig.from_json(run.info.capture)
    for collection in config.collections.values():
        held = [row for row in rows if collection.holds(row.name)]
        size = sum(row.size for row in held)
        when = "; ".join(_schedule(save) for save in collection.saves)
        table.add_row(collection.name, str(len(held)), f"{size:,}", when)
    return table


def _schedule(save: SaveConfig) -> str:
    """Describe when a save config saves, and its statistics."""
    words = []
    if save.every:
        words.append("every step" if save.every == 1 else f"every {save.every} steps")
    if save.start:
        words.append(f"from {save.start}")
    if save.stop is not None:
        words.append(f"before {save.stop}")
    if save.steps:
        words.append(f"at {', '.join(map(str, save.steps))}")
    if save.when is not None:
        words.append(f"when {save.when}")
    if set(save.modes) != set(MODES):
        words.append(f"in {', '.join(save.modes)}")
    if save.reductions:
        words.append(f"({' '.join(save.reductions)}{' and the tensor' if save.tensor else ''})")
    return " ".join(words) or "never"


def show_name(run: Run, name: str, *, step: int | None, mode: str, rank: int) -> None:
    """Print a tensor's statistics over the steps, its values at one step, or a scalar's values.

    Args:
        step: only this step, with the tensor's values; None: all steps.
        mode: "train", "eval" or "predict".
        rank: rank of a distributed run.

    Raises:
        ConfigError: no such mode.
        UnknownTensor: no such tensor or scalar; the message names the nearest.
        UnknownStep: not captured at this step.
        CorruptData: the bytes on disk do not match their checksum.
    """
    kind = mode_of(mode)
    scalars, tensors = run.scalar_names(), run.tensor_names()
    if name in scalars:
        _show_scalar(run, name, step, kind, rank)
    elif name in tensors:
        _show_tensor(run, name, step, kind, rank)
    else:
        near = did_you_mean(name, [*scalars, *tensors])
        raise UnknownTensor(f"{run.path}: no tensor or scalar {name}{near}")


def _show_scalar(run: Run, name: str, step: int | None, mode: Mode, rank: int) -> None:
    """Print the values of a scalar."""
    columns = run.scalars(f"^{re.escape(name)}$", mode=mode, rank=rank)
    if name not in columns:
        others = [f"--mode {one}" for one in _scalar_modes(run).get(name, ()) if one != mode]
        raise UnknownStep(
            f"{run.path}: {name}: never captured in mode {mode} by rank {rank}"
            f"{'; try ' if others else ''}{' or '.join(others)}"
        )
    column = columns[name]
    if step is not None:
        where = column.steps == step
        if not where.any():
            raise UnknownStep(f"{run.path}: {name}: not captured at {mode} step {step}")
        console.print(f"{name}   {mode} step {step}   {column.values[where][-1]:.6g}")
        return
    _print_series(name, {"value": column})


def _show_tensor(run: Run, name: str, step: int | None, mode: Mode, rank: int) -> None:
    """Print the statistics of a tensor, or its values at one step."""
    view = run.tensor(name)
    if step is not None:
        value = view.value(step, mode, rank)
        console.print(f"{name}   {mode} step {step}   {value.dtype} {value.shape}")
        statistics = reduce_array(value, REDUCTIONS)
        console.print("   ".join(f"{key} {figure:.6g}" for key, figure in statistics.items()))
        for line in _excerpt(value).splitlines():
            console.print(line)
        return
    kept = {key: view.reduction(key, mode, rank) for key in view.reductions}
    kept = {key: column for key, column in kept.items() if len(column)}
    if kept:
        _print_series(name, kept)
    full = view.steps(mode, rank)
    if len(full):
        shown = ", ".join(map(str, full[:_MOST_ROWS])) + (", …" if len(full) > _MOST_ROWS else "")
        console.print(f"{name}   in full at {mode} steps {shown}; print one with --step")
    if not kept and not len(full):
        raise UnknownStep(f"{run.path}: {name}: never captured in mode {mode} by rank {rank}")


def draw_name(
    run: Run, name: str, target: Path, *, step: int | None, mode: str, rank: int, kind: str | None
) -> None:
    """Draw a tensor or scalar into a file, and print what was drawn.

    Args:
        target: a .svg or .html file, for images also .png.
        step: only this step; None: all steps.
        mode: "train", "eval" or "predict".
        rank: rank of a distributed run.
        kind: "curve", "histogram" or "images"; None: the default, by shape.

    Raises:
        ConfigError: no such mode or kind, or an unknown picture format.
        UnknownTensor: no such tensor or scalar; the message names the nearest.
        UnknownStep: not captured at this step.
        CorruptData: the bytes on disk do not match their checksum.
    """
    from vinedresser.explain.drawing import DRAWINGS, draw

    if kind is not None and kind not in DRAWINGS:
        raise ConfigError(f"--as {kind}: no such picture; choose {', '.join(DRAWINGS)}")
    chosen = DRAWINGS[kind] if kind else None
    drawn = draw(run, name, target, step=step, mode=mode_of(mode), rank=rank, kind=chosen)
    console.print(f"{target}   {drawn} of {name}", soft_wrap=True)


def mode_of(word: str) -> Mode:
    """Return the value of --mode.

    Raises:
        ConfigError: no such mode.
    """
    kinds: dict[str, Mode] = {one: one for one in MODES}
    if word not in kinds:
        raise ConfigError(f"--mode {word}: no such mode; choose {', '.join(MODES)}")
    return kinds[word]


def _print_series(name: str, columns: dict[str, Column]) -> None:
    """Print a table over the steps; of a long series, rows at even distances.

    Columns captured at different steps are joined by step: a cell is blank where there is no value.
    """
    first = next(iter(columns.values())).steps
    same = all(np.array_equal(column.steps, first) for column in columns.values())
    if same:
        # Evaluations between the same two optimizer steps share a step: each has its row.
        steps, places = first, dict.fromkeys(columns, np.arange(len(first)))
    else:
        steps = np.unique(np.concatenate([column.steps for column in columns.values()]))
        places = {key: _last_places(column.steps, steps) for key, column in columns.items()}
    rows = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), _MOST_ROWS)).astype(int))
    console.print(f"{name}   {len(rows)} of {len(steps)} steps")
    table = Table(header_style="bold")
    table.add_column("step", justify="right")
    for key in columns:
        table.add_column(key, justify="right")
    for row in rows:
        figures = [
            f"{column.values[place]:.6g}" if (place := places[key][row]) >= 0 else ""
            for key, column in columns.items()
        ]
        table.add_row(str(steps[row]), *figures)
    console.print(table)


def _last_places(own: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of the last value at each step, int64 [N]; -1 where there is none.

    Args:
        own: steps of the values, int64 [M], ascending.
        steps: the steps to look up, int64 [N].
    """
    found = np.searchsorted(own, steps, side="right") - 1
    return np.where((found >= 0) & (own[np.maximum(found, 0)] == steps), found, -1)


def _tensor_row(run: Run, name: str) -> _Row:
    view = run.tensor(name)
    full = view.steps(None)
    kept = list(view.reductions)
    shape, size = "", 8 * sum(len(view.reduction(key)) for key in kept)
    steps = len(view.reduction(kept[0])) if kept else 0
    if len(full):
        kept.insert(0, "tensor")
        shape = " x ".join(map(str, view.shape)) or "0-d"
        shape = f"{shape} {view.dtype}"
        size += len(full) * int(np.prod(view.shape)) * view.dtype.itemsize
        steps = max(steps, len(full))
    return _Row(name, shape, steps, " ".join(kept), size)


def _scalar_modes(run: Run) -> dict[str, list[Mode]]:
    found: dict[str, list[Mode]] = defaultdict(list)
    for mode in MODES:
        for name in run.scalars(mode=mode):
            found[name].append(mode)
    return found


def _excerpt(value: NDArray[Any]) -> str:
    """Return the corners of an array (any shape and dtype) as text."""
    with np.printoptions(threshold=60, edgeitems=3, precision=4, linewidth=100):
        return str(value.astype(np.float64) if value.dtype.kind == "V" else value)
