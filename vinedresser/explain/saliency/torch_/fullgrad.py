"""FullGrad of PyTorch models (Srinivas and Fleuret, NeurIPS 2019), exact for any operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vinedresser.errors import SaliencyError
from vinedresser.explain.saliency.batches import complete_in_total, joined
from vinedresser.explain.saliency.options import Method, Postprocess
from vinedresser.explain.saliency.result import BiasTerm, Saliency
from vinedresser.explain.saliency.torch_.arrangement import arranged
from vinedresser.explain.saliency.torch_.axes import axes_of_input
from vinedresser.explain.saliency.torch_.model_state import frozen
from vinedresser.explain.saliency.torch_.pictures import Pictures
from vinedresser.explain.saliency.torch_.tracer import Noted, Tracer
from vinedresser.pruning.torch_.module_path import following

__all__ = ["fullgrad"]

_TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12}


def fullgrad(
    model: torch.nn.Module,
    inputs: torch.Tensor,
    targets: int | Sequence[int] | None,
    method: Method,
    postprocess: Postprocess,
) -> Saliency:
    """Decompose outputs of a model and draw the saliency map.

    Args:
        model: returns [batch, outputs], or [batch]; it is used in evaluation mode and is
            afterwards as it was.
        inputs: float32 or float64, [batch, ...].
        targets: index of the output to explain, of all examples or one each; None for the largest.
        method: what the map shows.
        postprocess: what is done to each term of the map.

    Raises:
        SaliencyError: the inputs, the model's output or the targets do not allow it.
    """
    _check_inputs(inputs)
    original = getattr(model, "_orig_mod", model)  # torch.compile hides its operators
    with frozen(original, inputs.device):
        together = _explained(original, inputs, targets, method, postprocess)
        if together is not None and (together.complete or not complete_in_total(together)):
            return together
        # Some term could not be shared out, or was shared out wrongly.
        parts = (
            _explained(original, inputs[place : place + 1], target, method, postprocess)
            for place, target in enumerate(_each(targets, len(inputs)))
        )
        alone = joined([part for part in parts if part is not None])
    if together is None or np.allclose(alone.outputs, together.outputs):
        return alone
    mixing = "examples that change the outputs of others, such as by statistics of the batch"
    return replace(together, uncovered=(*together.uncovered, mixing))


def _check_inputs(inputs: torch.Tensor) -> None:
    """Check the inputs.

    Raises:
        SaliencyError: they cannot be explained.
    """
    if not isinstance(inputs, torch.Tensor) or inputs.dtype not in _TOLERANCES:
        kind = inputs.dtype if isinstance(inputs, torch.Tensor) else type(inputs).__name__
        raise SaliencyError(f"inputs are {kind}; they must be a float32 or float64 tensor")
    if inputs.ndim < 2 or inputs.numel() == 0:
        raise SaliencyError(
            f"inputs have the shape {list(inputs.shape)}; they must be [batch, ...] and not empty"
        )
    finite = inputs.isfinite().flatten(1).all(1)
    if not finite.all():
        place = int((~finite).nonzero()[0])
        raise SaliencyError(f"inputs[{place}] contains NaN or infinity")


class _Terms:
    """Collects the terms of operators while gradients are computed."""

    def __init__(self, batch: int, pictures: Pictures) -> None:
        self._batch = batch
        self._pictures = pictures
        self.found: dict[str, tuple[torch.Tensor, bool]] = {}

    def add(self, noted: Noted, gradient: torch.Tensor) -> None:
        """Add the term of an operator."""
        product = arranged(gradient * noted.bias, noted.axes, self._batch)
        self.found[noted.name] = product.sums().double(), product.spatial
        self._pictures.add(noted, gradient, product)


def _explained(
    model: torch.nn.Module,
    inputs: torch.Tensor,
    targets: int | Sequence[int] | None,
    method: Method,
    postprocess: Postprocess,
) -> Saliency | None:
    """Decompose outputs of a frozen model; None if examples cannot be told apart somewhere.

    Raises:
        SaliencyError: the model's output or the targets do not allow it.
    """
    batch = len(inputs)
    pictures = Pictures(method, postprocess)
    terms = _Terms(batch, pictures)
    path = [""]
    leaf = inputs.detach().clone().requires_grad_()
    # The model may change its input in place, but not a leaf.
    given = leaf.clone()
    tracer = Tracer(path, terms.add)
    tracer.start(given, axes_of_input(given))
    with following(dict(model.named_modules()), path):
        with tracer:
            output = model(given)
        tracer.settle()
    table = _table(output, batch)
    if batch > 1 and any("example" not in one.axes for one in tracer.noted):
        return None
    chosen = _chosen(table, targets)
    values = table.gather(1, chosen.unsqueeze(1)).squeeze(1)
    (gradient,) = torch.autograd.grad(values.sum(), leaf)
    pictures.add_input(leaf.detach(), gradient)
    drawn = None
    if inputs.ndim == 4:
        drawn = pictures.enlarged(inputs.shape[2], inputs.shape[3]).cpu().numpy()
    return Saliency(
        map=drawn,
        targets=chosen.cpu().numpy(),
        outputs=values.detach().double().cpu().numpy(),
        input_term=(leaf.detach() * gradient).cpu().numpy(),
        bias_terms={
            one.name: BiasTerm(one.layer, one.operator, _array(terms.found[one.name][0]), in_map)
            for one in tracer.noted
            if one.name in terms.found
            for in_map in [terms.found[one.name][1]]
        },
        tolerance=_TOLERANCES[table.dtype],
        uncovered=tuple(tracer.uncovered),
    )


def _array(sums: torch.Tensor) -> npt.NDArray[np.float64]:
    array: npt.NDArray[np.float64] = sums.detach().cpu().numpy()
    return array


def _table(output: Any, batch: int) -> torch.Tensor:
    """Return a model's output as [batch, outputs].

    Raises:
        SaliencyError: it is something else, or does not depend on the input.
    """
    if not isinstance(output, torch.Tensor):
        raise SaliencyError(
            f"the model returns {type(output).__name__}; it must return a tensor [batch, outputs]"
        )
    if output.ndim not in (1, 2) or len(output) != batch or output.dtype not in _TOLERANCES:
        raise SaliencyError(
            f"the model returns {output.dtype} {list(output.shape)}; it must return float32 or "
            f"float64 [{batch}, outputs]"
        )
    if not output.requires_grad:
        raise SaliencyError("the model's output does not depend differentiably on its input")
    return output if output.ndim == 2 else output.unsqueeze(1)


def _each(targets: int | Sequence[int] | None, batch: int) -> Sequence[int | None]:
    if targets is None or isinstance(targets, int):
        return [targets] * batch
    return targets


def _chosen(table: torch.Tensor, targets: int | Sequence[int] | None) -> torch.Tensor:
    """Return the target of each example, int64 [batch].

    Raises:
        SaliencyError: they are not valid indices.
    """
    batch, count = table.shape
    if targets is None:
        return table.detach().argmax(1)
    chosen = torch.as_tensor(targets, device=table.device)
    if chosen.is_floating_point() or chosen.dtype == torch.bool:
        raise SaliencyError(f"targets are {chosen.dtype}; they must be integers")
    if chosen.ndim > 1 or (chosen.ndim == 1 and len(chosen) != batch):
        raise SaliencyError(
            f"targets have the shape {list(chosen.shape)}; they must be one index, or one for each "
            f"of the {batch} examples"
        )
    if ((chosen < 0) | (chosen >= count)).any():
        raise SaliencyError(f"targets must be between 0 and {count - 1}, the model's outputs")
    return chosen.long().expand(batch)
