"""Reading the terms of the loss that a training captured at a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import UnknownStep
from vinedresser.explain.saliency.enlarging import enlarged
from vinedresser.explain.saliency.result import TOLERANCES, BiasTerm, Saliency
from vinedresser.explain.saliency.spread import spread
from vinedresser.rules.signals.losses.loss_formulas import class_indices
from vinedresser.store.reading.reader import Run
from vinedresser.store.reductions.sampling import strided_rows

__all__ = [
    "CapturedSaliency",
    "captured_over_steps",
    "captured_saliency",
    "saliency_steps",
]

_KIND = "loss_terms"
_TOTAL = "[total]"
_INPUT = "[input]"
# Of outputs in half precision: bfloat16 has eight bits.
_COARSE = 2e-2

_Tensors = Mapping[str, NDArray[Any]]
_MOST_NAMED = 4


@dataclass(frozen=True, eq=False)
class CapturedSaliency:
    """Examples of a train step, and the decomposition of the gradient of its loss.

    Shape legend: K examples.

    Attributes:
        inputs: the examples, [K, ...].
        predicted: class with the largest output, int64 [K]; None if the outputs are not classes.
        confidence: its share in the softmax of the outputs, float64 [K]; NaN if they are not
            classes.
        true: true class, int64 [K]; None if it was not captured.
        result: the decomposition: `outputs` are the model's outputs times their gradients, `map`
            has signs, and `targets` are the true or else predicted classes.
    """

    step: int
    inputs: NDArray[Any]
    predicted: NDArray[np.int64] | None
    confidence: NDArray[np.float64]
    true: NDArray[np.int64] | None
    result: Saliency


def saliency_steps(run: Run) -> NDArray[np.int64]:
    """Return the train steps with captured terms of the loss, int64, ascending.

    Raises:
        UnknownStep: there are none.
    """
    totals = _totals(run)
    steps = run.tensor(totals[0]).steps("train") if totals else np.empty(0, np.int64)
    if not len(steps):
        kind = run.info.framework
        hint = "" if kind in ("", "torch") else f" (PyTorch only; this run is of {kind})"
        raise UnknownStep(
            f"{run.path}: no terms of the loss were captured{hint}; set [capture.loss_terms] "
            "every = 100, rows = 6, or give --model MODULE:FUNCTION, which returns the model"
        )
    return steps


def captured_over_steps(run: Run) -> list[CapturedSaliency]:
    """Return the captured terms of up to 7 steps, spread evenly, with the last one.

    Raises:
        UnknownStep: there are none, or they were not captured in full.
        CorruptData: the bytes on disk do not match their checksum.
    """
    steps = spread(saliency_steps(run))
    return [captured_saliency(run, step) for step in steps]


def captured_saliency(run: Run, step: int) -> CapturedSaliency:
    """Return the captured terms of a step as an explanation.

    Of several models, the one that was captured first is explained.

    Args:
        step: one of `saliency_steps`.

    Raises:
        UnknownStep: the terms were not captured in full at this step.
        CorruptData: the bytes on disk do not match their checksum.
    """
    root, found = _at(run, step)
    # Those of a training that has diverged are not finite.
    with np.errstate(invalid="ignore", over="ignore"):
        return _explained(run, step, root, found)


def _explained(run: Run, step: int, root: str, found: dict[str, NDArray[Any]]) -> CapturedSaliency:
    """Return the explanation of the tensors of a model."""
    total = found.pop(f"{root}{_TOTAL}")
    rows = found.pop(f"{root}[rows]")
    inputs = found.pop(f"{root}[example]", np.zeros((len(total), 0), np.float32))
    outputs = found.pop(f"{root}[outputs]", None)
    outputs = outputs if outputs is not None and outputs.ndim == 2 else None
    of_inputs = {name: one for name, one in found.items() if name.endswith(_INPUT)}
    rests = {name: one for name, one in found.items() if name.endswith("[rest]")}
    terms = {name: one for name, one in found.items() if name not in {**of_inputs, **rests}}
    lengths = _lengths(inputs)
    bias_terms = {
        name: BiasTerm(_layer(name), _operator(run, name), _sums(one), _fits(one, lengths))
        for name, one in terms.items()
    }
    sizes = [np.abs(_sums(one)) for one in (*of_inputs.values(), *terms.values())]
    tolerance = _tolerance(total, outputs)
    input_term = _input_term(of_inputs, len(total))
    predicted, confidence = _predicted(outputs, len(total))
    true = None if outputs is None else _labels(run, step, rows.reshape(-1, 2), outputs)
    targets = true if true is not None else predicted
    return CapturedSaliency(
        step,
        inputs,
        predicted,
        confidence,
        true,
        Saliency(
            map=_map([*of_inputs.values(), *terms.values()], lengths),
            targets=np.zeros(len(total), np.int64) if targets is None else targets,
            outputs=np.asarray(total, np.float64),
            input_term=input_term,
            attributions=input_term,
            bias_terms=bias_terms,
            tolerance=tolerance,
            uncovered=_uncovered(run, root, rests, tolerance, np.sum([abs(total), *sizes], 0)),
        ),
    )


def _totals(run: Run) -> list[str]:
    names = run.tensor_names(collection=_KIND)
    return [name for name in names if name.endswith(_TOTAL)]


def _at(run: Run, step: int) -> tuple[str, dict[str, NDArray[Any]]]:
    """Return the path of the model, and its tensors without their kind."""
    roots = [name.removeprefix(f"{_KIND}/").removesuffix(_TOTAL) for name in _totals(run)]
    root, *others = roots
    found = {}
    for name in run.tensor_names(collection=_KIND):
        plain = name.removeprefix(f"{_KIND}/")
        view = run.tensor(name)
        if not any(_is_inside(plain, other) for other in others) and step in view.steps("train"):
            found[plain] = view.value(step, "train")
    rows = found.get(f"{root}[rows]")
    counts = {len(one) if one.ndim else 0 for one in found.values()}
    if f"{root}{_TOTAL}" not in found or rows is None or counts != {rows.size // 2}:
        raise UnknownStep(f"{run.path}: the terms of the loss are not complete at step {step:,}")
    return root, found


def _is_inside(name: str, root: str) -> bool:
    """Return whether a tensor belongs to a model."""
    return name.startswith((f"{root}.", f"{root}["))


def _layer(name: str) -> str:
    return name.partition("#")[0]


def _operator(run: Run, name: str) -> str:
    """Return the type of the module, or the name of the function, that made a call."""
    layer = _layer(name)
    known = run.info.modules.get(layer)
    return known[0] if known else layer.rpartition(".")[2].removesuffix("()")


def _sums(term: NDArray[Any]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = term.reshape(len(term), -1).sum(1, dtype=np.float64)
    return found


def _lengths(inputs: NDArray[Any]) -> tuple[int, ...]:
    """Return the lengths of a map: rows and columns of images, or tokens; () for none."""
    if inputs.ndim == 4:
        return inputs.shape[2:]
    return inputs.shape[1:] if inputs.ndim == 2 and inputs.dtype.kind in "iu" else ()


def _fits(term: NDArray[Any], lengths: tuple[int, ...]) -> bool:
    """Return whether the places of a term are those of a map."""
    places = term.shape[1:]
    if len(lengths) == 1:
        return places == lengths
    return len(lengths) == 2 == len(places)


def _map(terms: list[NDArray[Any]], lengths: tuple[int, ...]) -> NDArray[np.float32] | None:
    """Return the sum of all terms with places, float32 [K, lengths...]; None without a map."""
    shown = [term for term in terms if lengths and _fits(term, lengths)]
    if not shown:
        return None
    by_size: dict[tuple[int, ...], NDArray[np.float64]] = {}
    for one in shown:
        wide = one.astype(np.float64)
        by_size[one.shape] = by_size[one.shape] + wide if one.shape in by_size else wide
    drawn = [enlarged(one, lengths) for one in by_size.values()]
    found: NDArray[np.float32] = np.sum(drawn, axis=0).astype(np.float32)
    return found


def _input_term(terms: _Tensors, count: int) -> NDArray[Any]:
    """Return the input term, [K, ...]; of several inputs side by side."""
    if not terms:
        return np.zeros((count, 0), np.float64)
    if len(terms) == 1:
        return next(iter(terms.values()))
    return np.concatenate([term.reshape(count, -1) for term in terms.values()], 1)


def _tolerance(total: NDArray[Any], outputs: NDArray[Any] | None) -> float:
    if outputs is not None and outputs.dtype.name not in TOLERANCES:
        return _COARSE
    return TOLERANCES.get(total.dtype.name, _COARSE)


def _predicted(
    outputs: NDArray[Any] | None, count: int
) -> tuple[NDArray[np.int64] | None, NDArray[np.float64]]:
    """Return predicted classes and their confidence."""
    if outputs is None or outputs.shape[1] < 2:
        return None, np.full(count, np.nan)
    wide = outputs.astype(np.float64)
    if not np.isfinite(wide).all():
        return wide.argmax(1), np.full(count, np.nan)
    if (wide >= 0).all() and np.allclose(wide.sum(1), 1, atol=1e-3):
        # The model ends with a softmax.
        return wide.argmax(1), wide.max(1)
    powers = np.exp(wide - wide.max(1, keepdims=True))
    return wide.argmax(1), powers.max(1) / powers.sum(1)


def _labels(
    run: Run, step: int, rows: NDArray[np.int64], outputs: NDArray[Any]
) -> NDArray[np.int64] | None:
    """Return the true classes of the examples; None if they were not captured.

    Args:
        rows: numbers of the examples, and size of the batch, int64 [K, 2].
        outputs: the model's outputs, [K, classes].
    """
    batch = int(rows[0, 1])
    # Without their inputs, labels are those of other rows.
    names = [] if run.info.unpaired else run.tensor_names(collection="labels")
    for name in names:
        view = run.tensor(name)
        if step not in view.steps("train"):
            continue
        labels = view.value(step, "train")
        kept = strided_rows(batch, len(labels)) if 0 < len(labels) <= batch else None
        numbers = np.arange(batch) if kept is None else kept
        if len(labels) != len(numbers) or not np.isin(rows[:, 0], numbers).all():
            continue
        found = class_indices(labels[np.searchsorted(numbers, rows[:, 0])], outputs.shape[1])
        if found is not None and found.shape == (len(rows),):
            return found
    return None


def _uncovered(
    run: Run,
    root: str,
    rests: Mapping[str, NDArray[Any]],
    tolerance: float,
    scale: NDArray[np.float64],
) -> tuple[str, ...]:
    """Return the modules whose own part of the loss's gradient is in no term, the largest first.

    Args:
        rests: by name of a call, the part that the calls inside leave, [K].
        tolerance: largest part that counts as none.
        scale: sum of the magnitudes of the terms, float64 [K].
    """
    if not np.isfinite(scale).all():
        return ("terms that are not finite",)
    shares = {name: _share(rest, scale) for name, rest in rests.items()}
    names = sorted(shares, key=lambda name: -shares[name])
    return tuple(
        _sentence(run, root, name.removesuffix("[rest]"), shares[name])
        for name in names
        if shares[name] > tolerance
    )[:_MOST_NAMED]


def _share(rest: NDArray[Any], scale: NDArray[np.float64]) -> float:
    return float((np.abs(rest) / np.where(scale == 0, 1, scale)).max())


def _sentence(run: Run, root: str, call: str, share: float) -> str:
    """Return what may be the cause, with its share of all terms."""
    path = call.partition("#")[0]
    silent = _silent(run, root, path)
    what = f"functions that {path} calls" + (f", or {', '.join(silent)}" if silent else "")
    return f"{what} ({share:.2g} of all terms)"


def _silent(run: Run, root: str, path: str) -> list[str]:
    """Return the modules directly inside a module that have no terms."""
    names = [name.partition("/")[2] for name in run.tensor_names(collection="loss_terms")]
    known = {name.partition("[")[0].partition("#")[0] for name in names}
    # The paths of a model begin with its name, if it was watched under one.
    named = any(module.startswith(f"{root}.") for module in run.info.modules)
    prefix = f"{path}." if named or path != root else ""
    inside = [
        module
        for module in run.info.modules
        if module != root and module.startswith(prefix) and "." not in module.removeprefix(prefix)
    ]
    return [
        one
        for one in inside
        if not any(other == one or other.startswith(f"{one}.") for other in known)
    ][:_MOST_NAMED]
