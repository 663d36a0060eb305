"""Explaining a run: where its model looks in the examples that it gets wrong."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vinedresser.explain.charts.svg import Svg
from vinedresser.explain.examples.cells import Cell, cells
from vinedresser.explain.examples.explained import Explained, explain_true, explained
from vinedresser.explain.examples.pictures import cell_sheet, contact_rows
from vinedresser.explain.formatting import number
from vinedresser.explain.reports.confusion import class_pairs
from vinedresser.explain.reports.hard_examples import (
    RankedRow,
    class_name,
    ranked_rows,
    row_inputs,
    share_of_prediction,
)
from vinedresser.explain.reports.last_batches import LastBatches, last_batches
from vinedresser.explain.reports.templating import write_page
from vinedresser.explain.saliency import sheet
from vinedresser.explain.saliency.captured import captured_saliency, saliency_steps
from vinedresser.explain.saliency.model_input import plain_inputs
from vinedresser.explain.saliency.options import Method
from vinedresser.explain.saliency.over_steps.explaining import captured_examples, check_model
from vinedresser.explain.saliency.over_steps.weights import last_step, load_step
from vinedresser.explain.saliency.parts import largest_parts
from vinedresser.store.reading.reader import Run

__all__ = ["RunExplanation", "explain_captured", "explain_model", "write_run_explanation"]

_EXAMPLES = 32
_METHOD: Method = "fullgrad"


@dataclass(frozen=True, eq=False)
class RunExplanation:
    """Examples of a run, and where its model looks.

    Attributes:
        examples: the examples; `Explained.classes` and `Explained.true` are names.
        groups: cells of the confusion matrix, or predictions with the least confidence; empty if
            the outputs are not classes.
        what: what the maps show, one sentence.
        origin: where the examples come from.
        of: text below each map.
        origins: the record that each example is, as text, "" if that is not known; [] if it is not
            known of any.
    """

    run: Run
    examples: Explained
    groups: Sequence[Cell]
    what: str
    origin: str
    of: str
    origins: Sequence[str] = ()


def explain_model(run: Run, model: Any) -> RunExplanation:
    """Explain predictions with the weights of the last captured step.

    The examples are those of the last evaluation, or else of the last train steps: the wrong ones
    with the highest loss, then those with the least confidence, up to 32.

    Args:
        model: a torch.nn.Module like the trained one; its weights are overwritten.

    Raises:
        ConfigError: no inputs of the model were captured, the model is not a torch.nn.Module, or
            does not fit the captured weights.
        UnknownStep: the weights were not captured in full.
        SaliencyError: the model's output cannot be explained.
        CorruptData: the bytes on disk do not match their checksum.
    """
    check_model(model)
    mode, step = last_step(run, model)
    load_step(run, model, mode, step)
    what = f"FullGrad of the model's outputs, with the weights of {mode} step {step:,}"
    seen = last_batches(run)
    rows = [] if seen is None else _chosen(seen)
    inputs = None if seen is None or not rows else row_inputs(seen, rows)
    if seen is None or inputs is None:
        return _unlabelled(run, model, what)
    pairs = [_classes(seen, row) for row in rows]
    known = [pair for pair in pairs if pair is not None]
    several = seen.task == "classes" and len(known) == len(pairs)
    names = run.info.classes
    guesses = ["the output" if pair is None else class_name(pair[1], names) for pair in pairs]
    made = explained(
        model,
        plain_inputs(inputs),
        guesses,
        np.array([pair[1] for pair in known]) if several else None,
        confidence=np.array([share_of_prediction(seen, row.batch, row.row) for row in rows]),
        method=_METHOD,
    )
    made.true[:] = [None if pair is None else class_name(pair[0], names) for pair in pairs]
    if several:
        wrong = {place: pair[0] for place, pair in enumerate(known) if pair[0] != pair[1]}
        explain_true(made, model, wrong, _METHOD)
    groups = _groups(made) if known else []
    records = [str(row.batch.origin(row.row) or "") for row in rows]
    origins = records if any(records) else []
    return RunExplanation(run, made, groups, what, seen.where, "for the prediction", origins)


def explain_captured(run: Run) -> RunExplanation:
    """Explain the loss of the examples of the last train step with captured terms.

    Raises:
        UnknownStep: no terms of the loss were captured, or not in full.
        CorruptData: the bytes on disk do not match their checksum.
    """
    step = int(saliency_steps(run)[-1])
    found = captured_saliency(run, step)
    count, names = len(found.result.outputs), run.info.classes
    guesses = ["the loss"] * count
    true: list[str | None] = [None] * count
    if found.predicted is not None:
        guesses = [class_name(one, names) for one in found.predicted.tolist()]
    if found.true is not None:
        true = [class_name(one, names) for one in found.true.tolist()]
    made = Explained(found.inputs, found.result, guesses, found.confidence, true, {})
    groups = [] if found.predicted is None else _groups(made)
    what = (
        "FullGrad of the loss, from captured tensors: what raises the loss (orange) or lowers it "
        "(blue), to first order"
    )
    return RunExplanation(run, made, groups, what, f"those of train step {step:,}", "for the loss")


def _unlabelled(run: Run, model: Any, what: str) -> RunExplanation:
    """Explain examples without labels."""
    inputs, origin = captured_examples(run)
    count = len(inputs)
    made = explained(
        model,
        plain_inputs(inputs),
        ["the output"] * count,
        None,
        confidence=np.full(count, np.nan),
        method=_METHOD,
    )
    names, targets = run.info.classes, made.result.targets
    if names or targets.any():
        # Of one output, the targets are all 0.
        made.classes[:] = [class_name(one, names) for one in targets.tolist()]
    return RunExplanation(run, made, [], what, f"those of {origin}", "for the prediction")


def _chosen(seen: LastBatches) -> list[RankedRow]:
    """Return wrong rows by decreasing loss, then right ones by increasing confidence."""
    ranked = ranked_rows(seen)
    if seen.task not in ("classes", "binary"):
        return ranked[:_EXAMPLES]
    pairs = [_classes(seen, one) for one in ranked]
    wrong = [one for one, pair in zip(ranked, pairs, strict=True) if pair and pair[0] != pair[1]]
    right = [one for one, pair in zip(ranked, pairs, strict=True) if pair and pair[0] == pair[1]]
    right.sort(key=lambda one: share_of_prediction(seen, one.batch, one.row))
    return [*wrong, *right][:_EXAMPLES]


def _classes(seen: LastBatches, row: RankedRow) -> tuple[int, int] | None:
    """Return the true and the predicted class of a row; None if the labels are not classes."""
    if seen.task not in ("classes", "binary"):
        return None
    pair = class_pairs(seen, row.batch)
    if pair is None or len(pair[0]) != len(row.batch.compared.labels):
        return None
    return int(pair[0][row.row]), int(pair[1][row.row])


def _groups(made: Explained) -> list[Cell]:
    """Return the wrong predictions by cell, or else the least confident ones."""
    wrong = cells(made.classes, made.confidence, made.true)
    if wrong:
        return wrong
    unknown: list[str | None] = [None] * len(made.true)
    return cells(made.classes, made.confidence, unknown)


def write_run_explanation(found: RunExplanation, destination: str | os.PathLike[str]) -> Path:
    """Write the explanation of a run: one self-contained HTML file.

    Args:
        destination: file to write; replaced atomically, its directory is created.

    Raises:
        StoreError: the file cannot be written.
    """
    maps = found.examples.result.map
    images = maps is not None and maps.ndim == 3
    return write_page(
        destination,
        "run_explanation.html.j2",
        name=found.run.info.name,
        what=found.what,
        origin=found.origin,
        completeness=str(found.examples.result),
        cells=_cells(found) if images else [],
        contacts=sheet("", contact_rows("", found.examples)) if images else None,
        rows=[] if images else _rows(found),
        records=found.origins,
        examples=_named(found) if images and found.origins else [],
    )


def _cells(found: RunExplanation) -> list[tuple[str, Svg]]:
    return [(group.title, cell_sheet(found.examples, group, of=found.of)) for group in found.groups]


def _named(found: RunExplanation) -> list[tuple[str, str, str]]:
    """Return true class, predicted class and record of each example."""
    made = found.examples
    return [
        (true or "", predicted, record)
        for true, predicted, record in zip(made.true, made.classes, found.origins, strict=True)
    ]


def _rows(found: RunExplanation) -> list[list[str]]:
    """Return a row per example: classes, confidence, completeness error, largest contributions.

    Those of the groups come first.
    """
    made = found.examples
    grouped = dict.fromkeys(place for group in found.groups for place in group.places)
    places = [*grouped, *(one for one in range(len(made.classes)) if one not in grouped)]
    errors = made.result.completeness_error
    return [
        [
            made.true[place] or "",
            made.classes[place],
            "" if np.isnan(made.confidence[place]) else f"{made.confidence[place]:.0%}",
            number(float(errors[place]), 1),
            ", ".join(largest_parts(found.run, made.inputs[place], made.result, place)),
            *found.origins[place : place + 1],
        ]
        for place in places
    ]
