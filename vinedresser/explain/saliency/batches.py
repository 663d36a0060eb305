"""Explanations of batches and of their examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from vinedresser.explain.saliency.result import BiasTerm, Saliency
from vinedresser.explain.saliency.targets import Targets, target_of_each

__all__ = ["explained_in_batches", "joined"]


def explained_in_batches(
    explain: Callable[[slice, Targets], Saliency | None], batch: int, targets: Targets
) -> Saliency:
    """Explain a batch, one example at a time if need be.

    Args:
        explain: explains some of the examples with their targets; None if these cannot be told
            apart somewhere, never for a single one.
    """
    together = explain(slice(None), targets)
    if together is not None and (together.complete or not _complete_in_total(together)):
        return together
    # Some term could not be shared out, or was shared out wrongly.
    parts = (
        explain(slice(place, place + 1), target)
        for place, target in enumerate(target_of_each(targets, batch))
    )
    alone = joined([part for part in parts if part is not None])
    if together is None or np.allclose(alone.outputs, together.outputs):
        return alone
    mixing = "examples that change the outputs of others, such as by statistics of the batch"
    return replace(together, uncovered=(*together.uncovered, mixing))


def _complete_in_total(result: Saliency) -> bool:
    """Return whether the terms of all examples together add up to the sum of their outputs."""
    terms = [result.input_term, *(term.sums for term in result.bias_terms.values())]
    with np.errstate(invalid="ignore", over="ignore"):
        sums = np.array([term.sum(dtype=np.float64) for term in terms])
        total = result.outputs.sum()
        scale = max(abs(total), np.abs(sums).sum())
        return bool(abs(total - sums.sum()) <= result.tolerance * scale)


def joined(parts: Sequence[Saliency]) -> Saliency:
    """Return explanations of batches as that of one batch.

    Args:
        parts: at least one, all of one model and of inputs of one shape.
    """
    names = {name: term for part in parts for name, term in part.bias_terms.items()}
    maps = [part.map for part in parts if part.map is not None]
    attributed = [part.attributions for part in parts if part.attributions is not None]
    return Saliency(
        map=np.concatenate(maps) if maps else None,
        targets=np.concatenate([part.targets for part in parts]),
        outputs=np.concatenate([part.outputs for part in parts]),
        input_term=np.concatenate([part.input_term for part in parts]),
        attributions=np.concatenate(attributed) if attributed else None,
        bias_terms={name: _joined_term(name, term, parts) for name, term in names.items()},
        tolerance=parts[0].tolerance,
        uncovered=tuple(dict.fromkeys(one for part in parts for one in part.uncovered)),
    )


def _joined_term(name: str, term: BiasTerm, parts: Sequence[Saliency]) -> BiasTerm:
    """Return a term of all examples; it is zero for those whose forward pass did not have it."""
    sums = [
        part.bias_terms[name].sums if name in part.bias_terms else np.zeros(len(part.outputs))
        for part in parts
    ]
    return BiasTerm(term.layer, term.operator, np.concatenate(sums), term.in_map)
