"""`vinedresser show`: what a run captured, and the values of one of its tensors or scalars."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from vinedresser.capture.reductions import REDUCTIONS, reduce_array
from vinedresser.capture.store.reader import Run
from vinedresser.capture.store.series import Column
from vinedresser.capture.store.step_record import MODES, Mode
from vinedresser.errors import ConfigError, UnknownStep, UnknownTensor, did_you_mean
from vinedresser.terminal import console

__all__ = ["show_name", "show_run"]

# Rows of a long series that fit on a page; the rest is for `run.scalars(...).to_pandas()`.
_MOST_ROWS = 20


def show_run(run: Run) -> None:
    """Print how a run stands and what it captured, a line per tensor and scalar."""
    status = run.status
    steps = run.steps("train")
    console.print(Text(f"{run.info.name}   {status.state}   {status.reason}".rstrip()))
    if run.info.framework:
        version = run.info.versions.get(run.info.framework, "")
        console.print(Text(f"  {run.info.framework} {version}   {len(steps)} steps captured"))
    for problem in run.problems:
        console.print(Text(f"  {problem}", style="red"))
    table = Table(header_style="bold")
    for name, justify in (("name", "left"), ("shape", "left"), ("steps", "right")):
        table.add_column(name, justify="right" if justify == "right" else "left")
    table.add_column("kept")
    table.add_column("bytes", justify="right")
    for name in run.tensor_names():
        table.add_row(*_tensor_row(run, name))
    for name, modes in _scalar_modes(run).items():
        counts = sum(len(run.scalars(f"^{_literal(name)}$", mode=mode)[name]) for mode in modes)
        table.add_row(Text(name), "scalar", str(counts), ", ".join(modes), str(8 * counts))
    console.print(table)


def show_name(run: Run, name: str, *, step: int | None, mode: str, rank: int) -> None:
    """Print one tensor's statistics along the steps or at one step, or one scalar's values.

    Args:
        run: the run.
        name: of a tensor or scalar of it.
        step: only this step, with the tensor's values; None: all steps.
        mode: "train", "eval" or "predict".
        rank: of a distributed run.

    Raises:
        ConfigError: no such mode.
        UnknownTensor: no such tensor or scalar; the message has the nearest names.
        UnknownStep: it was not captured at this step.
        Damaged: the bytes on disk do not match their checksum.
    """
    kinds: dict[str, Mode] = {one: one for one in MODES}
    if mode not in kinds:
        raise ConfigError(f"--mode {mode}: no such mode; there are {', '.join(MODES)}")
    scalars, tensors = run.scalar_names(), run.tensor_names()
    if name in scalars:
        _show_scalar(run, name, step, kinds[mode], rank)
    elif name in tensors:
        _show_tensor(run, name, step, kinds[mode], rank)
    else:
        near = did_you_mean(name, [*scalars, *tensors])
        raise UnknownTensor(f"{run.path}: no tensor or scalar {name}{near}")


def _show_scalar(run: Run, name: str, step: int | None, mode: Mode, rank: int) -> None:
    columns = run.scalars(f"^{_literal(name)}$", mode=mode, rank=rank)
    if name not in columns:
        raise UnknownStep(f"{run.path}: {name}: never captured in mode {mode} by rank {rank}")
    column = columns[name]
    if step is not None:
        where = column.steps == step
        if not where.any():
            raise UnknownStep(f"{run.path}: {name}: not captured at {mode} step {step}")
        console.print(f"{name}   {mode} step {step}   {column.values[where][-1]:.6g}", markup=False)
        return
    _print_series(name, {"value": column})


def _show_tensor(run: Run, name: str, step: int | None, mode: Mode, rank: int) -> None:
    view = run.tensor(name)
    if step is not None:
        value = view.value(step, mode, rank)
        console.print(f"{name}   {mode} step {step}   {value.dtype} {value.shape}", markup=False)
        statistics = reduce_array(value, REDUCTIONS)
        console.print("   ".join(f"{key} {figure:.6g}" for key, figure in statistics.items()))
        console.print(_excerpt(value), markup=False)
        return
    kept = {key: view.reduction(key, mode, rank) for key in view.reductions}
    kept = {key: column for key, column in kept.items() if len(column)}
    if kept:
        _print_series(name, kept)
    full = view.steps(mode, rank)
    if len(full):
        shown = ", ".join(map(str, full[:_MOST_ROWS])) + (", …" if len(full) > _MOST_ROWS else "")
        console.print(
            f"{name}   in full at {mode} steps {shown}; see one with --step", markup=False
        )
    if not kept and not len(full):
        raise UnknownStep(f"{run.path}: {name}: never captured in mode {mode} by rank {rank}")


def _print_series(name: str, columns: dict[str, Column]) -> None:
    """Print a table over the steps; of a long one, evenly spread rows with the first and last."""
    steps = next(iter(columns.values())).steps
    rows = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), _MOST_ROWS)).astype(int))
    console.print(f"{name}   {len(rows)} of {len(steps)} steps", markup=False)
    table = Table(header_style="bold")
    table.add_column("step", justify="right")
    for key in columns:
        table.add_column(key, justify="right")
    for row in rows:
        figures = [f"{column.values[row]:.6g}" for column in columns.values()]
        table.add_row(str(steps[row]), *figures)
    console.print(table)


def _tensor_row(run: Run, name: str) -> tuple[str | Text, ...]:
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
    return Text(name), shape, str(steps), " ".join(kept), f"{size:,}"


def _scalar_modes(run: Run) -> dict[str, list[Mode]]:
    """Return the modes in which each scalar was captured."""
    found: dict[str, list[Mode]] = defaultdict(list)
    for mode in MODES:
        for name in run.scalars(mode=mode):
            found[name].append(mode)
    return found


def _excerpt(value: NDArray[Any]) -> str:
    """Return an array's corners as text."""
    with np.printoptions(threshold=60, edgeitems=3, precision=4, linewidth=100):
        return str(value.astype(np.float64) if value.dtype.kind == "V" else value)


def _literal(name: str) -> str:
    import re

    return re.escape(name)
