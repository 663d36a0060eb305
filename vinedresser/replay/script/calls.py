"""The samples that break a step of a script with several calls of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from vinedresser.replay.batch import Batch, batch_size
from vinedresser.replay.results import Bisection
from vinedresser.replay.samples import breaking, numbered
from vinedresser.replay.script.settings import ScriptResult

__all__ = ["breaking_of_calls"]

_Sample = tuple[int, int]


def breaking_of_calls(
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
