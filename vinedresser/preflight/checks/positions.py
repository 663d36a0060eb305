"""Does a language model see the tokens that it should predict?"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from vinedresser.frameworks.nesting import mapped
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.preflight.checks.base import Evidence
from vinedresser.preflight.program import CallEvent
from vinedresser.preflight.trials import NotRepeatable
from vinedresser.preflight.verdict import fine, suspicious, unchecked

_FEWEST_TOKENS = 4
# Share of the labels that are the next tokens in a language model: some may be replaced.
_NEXT = 0.99
# Share of the spread of the outputs by which they change with tokens that a model sees.
_CERTAIN = 0.01


def future(evidence: Evidence) -> tuple[str, str]:
    """Compare the outputs where the labels are the next tokens, with other tokens later on."""
    calls = evidence.trials.first.program.calls
    if len(calls) != 1:
        raise NotRepeatable(f"a step calls its models {len(calls)} times")
    (call,) = calls
    tokens = _predicted(evidence, call)
    cut = tokens.shape[1] // 2
    other = tokens.clone()
    # Tokens of the batch, so that they are in the vocabulary.
    other[:, cut:] = tokens[:, cut:].roll(1, 0).flip(1)
    if torch.equal(other, tokens):
        return unchecked("the samples do not differ in their later tokens")
    model = copy.deepcopy(evidence.seen.models[call.model]).eval()
    before = _outputs(model, call, tokens, tokens)[:, : cut - 1].flatten(0, 1)
    after = _outputs(model, call, tokens, other)[:, : cut - 1].flatten(0, 1)
    change = float((after - before).abs().max())
    spread = float((before - before.mean(0)).abs().max())
    if not (math.isfinite(change) and math.isfinite(spread) and spread > 0):
        return unchecked("the outputs are the same at all positions, or not finite")
    if change > _CERTAIN * spread:
        return suspicious(
            f"the outputs at {len(before)} positions change by up to {change:.3g} with later "
            f"tokens (between positions they differ by {spread:.3g}), and the labels are the next "
            "tokens: the model sees what it should predict; mask the future"
        )
    return fine(f"with other later tokens, they change by {change:.2g} of {spread:.3g}")


def _predicted(evidence: Evidence, call: CallEvent) -> Tensor:
    """Return the argument [samples, length] of which the labels are the next tokens."""
    function = evidence.trials.first.function
    if function is not None and function.compared.labels.dtype.kind in "iu":
        labels = torch.as_tensor(function.compared.labels)
        for _, tokens in leaves((call.args, call.kwargs)):
            if tokens.dim() != 2 or tokens.is_floating_point() or tokens.shape[1] < _FEWEST_TOKENS:
                continue
            following = tokens[:, 1:].cpu()
            # With or without a label at the last position.
            if labels.numel() in (tokens.numel(), following.numel()):
                rows = labels.reshape(len(tokens), -1)[:, : following.shape[1]]
                if (rows == following).double().mean() >= _NEXT:
                    return tokens
    raise NotRepeatable("the labels are not the next tokens of an input")


@torch.no_grad()
def _outputs(model: nn.Module, call: CallEvent, tokens: Tensor, other: Tensor) -> Tensor:
    """Return the output [samples, length, …] of a call with other tokens."""

    def given(value: Any) -> Any:
        return other if value is tokens else value

    result = model(*mapped(call.args, given), **mapped(call.kwargs, given))
    found = [
        one
        for _, one in leaves(result)
        if one.is_floating_point() and one.dim() == 3 and one.shape[:2] == tokens.shape
    ]
    if len(found) != 1:
        raise NotRepeatable("the model does not return one row for each token")
    return found[0]
