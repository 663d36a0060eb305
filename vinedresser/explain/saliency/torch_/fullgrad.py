"""FullGrad of PyTorch models (Srinivas and Fleuret, NeurIPS 2019), exact for any operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, cast, get_args

import numpy as np
import numpy.typing as npt
import torch

from vinedresser.errors import SaliencyError
from vinedresser.explain.saliency.axes import Axes
from vinedresser.explain.saliency.batches import explained_in_batches
from vinedresser.explain.saliency.options import Method, Peer, Postprocess
from vinedresser.explain.saliency.result import BiasTerm, Saliency
from vinedresser.explain.saliency.targets import Targets, checked_targets
from vinedresser.explain.saliency.torch_.arrangement import arranged
from vinedresser.explain.saliency.torch_.axes import axes_of_input
from vinedresser.explain.saliency.torch_.entry import (
    PRECISIONS,
    check_inputs,
    entered,
    is_tokens,
    pixels_of,
)
from vinedresser.explain.saliency.torch_.peers import attributions
from vinedresser.explain.saliency.torch_.terms import Reducer, Term
from vinedresser.explain.saliency.torch_.tracer import Noted, Tracer
from vinedresser.frameworks.torch_.modes import EachOperator
from vinedresser.frameworks.torch_.module_path import following

# Added to the largest value, which may be zero; as in the implementation of the paper's authors.
_EPSILON = 1e-6


def fullgrad(
    model: torch.nn.Module,
    inputs: torch.Tensor,
    targets: Targets,
    method: Method,
    postprocess: Postprocess,
    *,
    channels_last: bool,
) -> Saliency:
    """Decompose outputs of a model and draw the saliency map.

    Args:
        model: returns [batch, outputs], or [batch]; it is used in evaluation mode and is
            afterwards as it was.
        inputs: float32 or float64, [batch, ...], or token ids, int64 [batch, tokens].
        targets: index of the output to explain, of all examples or one each; None for the largest.
        method: what the map shows.
        postprocess: what is done to each term of the map.
        channels_last: images are [batch, H, W, C], as in Keras.

    Raises:
        SaliencyError: the inputs, the model's output or the targets do not allow it.
        MissingDependency: the method needs Captum, which is not installed.
    """
    check_inputs(inputs)
    if is_tokens(inputs) and method in get_args(Peer):
        raise SaliencyError(f"method={method!r} needs floating-point inputs, not token ids")
    original = getattr(model, "_orig_mod", model)  # torch.compile hides its operators
    peer = method in get_args(Peer)
    drawn = _Drawn("input_x_gradient" if peer else method, postprocess, channels_last)
    with _frozen(original, inputs.device):
        result = explained_in_batches(
            lambda part, of_part: _explained(original, inputs[part], of_part, drawn),
            len(inputs),
            targets,
        )
        if not peer:
            return result
        return _with_peer(result, original, inputs, cast(Peer, method), drawn)


class _Drawn(NamedTuple):
    """How a map is drawn: the arguments of `fullgrad`."""

    method: Method
    postprocess: Postprocess
    channels_last: bool


def _with_peer(
    result: Saliency,
    model: torch.nn.Module,
    inputs: torch.Tensor,
    method: Peer,
    shown: _Drawn,
) -> Saliency:
    """Return a decomposition with the map of another method."""
    chosen = torch.tensor(result.targets, device=inputs.device)
    found = attributions(model, lambda x: _as_table(model(x), len(x)), inputs, chosen, method)
    terms = _Terms(inputs, shown)
    # Grad-CAM's layer has its channels before rows and columns in any model.
    last = shown.channels_last and method != "grad_cam"
    terms.show(found, axes_of_input(found, channels_last=last))
    return replace(
        result,
        map=terms.map(),
        attributions=None if method == "grad_cam" else _array(found),
    )


class _Terms:
    """Collects the terms of operators while gradients are computed, and adds up their pictures."""

    def __init__(self, inputs: torch.Tensor, drawn: _Drawn) -> None:
        self.pixels = pixels_of(inputs, channels_last=drawn.channels_last)
        self._batch = len(inputs)
        self._method = drawn.method
        self._reducer = Reducer(inputs, tuple(self.pixels), signed=drawn.postprocess == "none")
        self._pictures = _Pictures(rescaled=drawn.postprocess == "rescale")
        self._sums: dict[str, torch.Tensor] = {}
        self._in_map: set[str] = set()

    def add(self, noted: Noted, gradient: torch.Tensor) -> None:
        """Add the term of an operator."""
        term = self._reducer.term(gradient, noted.bias, noted.axes)
        self._sums[noted.name] = term.sums
        if term.picture is not None:
            self._in_map.add(noted.name)
        if self._method == "fullgrad":
            self._pictures.add(term)
        elif self._method == "simple_fullgrad":
            self.show(gradient, noted.axes)

    def show(self, values: torch.Tensor, axes: Axes) -> None:
        """Add values to the map that are no term, such as gradients."""
        if self.pixels:
            # A copy, since it is changed.
            self._pictures.add(
                self._reducer.of_product(arranged(values.clone(), axes, self._batch))
            )

    def bias_terms(self, noted: Sequence[Noted]) -> dict[str, BiasTerm]:
        """Return the terms of those operators that the outputs depend on, in their order."""
        found = [one for one in noted if one.name in self._sums]
        if not found:
            return {}
        # Together, since copying many small tensors takes time.
        sums = _array(torch.stack([self._sums[one.name] for one in found]).double())
        return {
            one.name: BiasTerm(one.layer, one.operator, row, one.name in self._in_map)
            for one, row in zip(found, sums, strict=True)
        }

    def map(self) -> npt.NDArray[np.float32] | None:
        """Return the map, float32 [batch, pixels...]."""
        drawn = self._pictures.enlarged(*self.pixels.values())
        return None if drawn is None else _array(drawn)


def _explained(
    model: torch.nn.Module,
    inputs: torch.Tensor,
    targets: Targets,
    drawn: _Drawn,
) -> Saliency | None:
    """Decompose outputs of a frozen model; None if examples cannot be told apart somewhere."""
    batch, path = len(inputs), [""]
    terms = _Terms(inputs, drawn)
    tracer = Tracer(path, terms.add)
    with (
        entered(model, inputs, tracer, channels_last=drawn.channels_last) as entry,
        following(dict(model.named_modules()), path),
    ):
        with EachOperator(tracer.run):
            output = model(entry.given)
        tracer.settle()
    table = _as_table(output, batch)
    if not table.requires_grad:
        raise SaliencyError("the model's output does not depend differentiably on its input")
    if batch > 1 and any("example" not in one.axes for one in tracer.noted):
        return None
    chosen = _chosen_targets(table, targets)
    values = table.gather(1, chosen.unsqueeze(1)).squeeze(1)
    # Token ids may be looked up in several embeddings.
    gradient = torch.cat(torch.autograd.grad(values.sum(), entry.leaves), -1)
    product = torch.cat(entry.leaves, -1).detach() * gradient
    shown = gradient if drawn.method == "gradient" else product
    terms.show(shown, entry.axes)
    return Saliency(
        map=terms.map(),
        targets=_array(chosen),
        outputs=_array(values.double()),
        input_term=_array(product),
        attributions=_array(shown.sum(-1) if is_tokens(inputs) else shown),
        bias_terms=terms.bias_terms(tracer.noted),
        tolerance=PRECISIONS[table.dtype],
        uncovered=tuple(tracer.uncovered),
    )


def _array(values: torch.Tensor) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = values.detach().cpu().numpy()
    return array


def _as_table(output: Any, batch: int) -> torch.Tensor:
    """Return a model's output as [batch, outputs]."""
    if not isinstance(output, torch.Tensor):
        raise SaliencyError(
            f"the model returns {type(output).__name__}; it must return a tensor [batch, outputs]"
        )
    if output.ndim not in (1, 2) or len(output) != batch or output.dtype not in PRECISIONS:
        raise SaliencyError(
            f"the model returns {output.dtype} {list(output.shape)}; it must return float32 or "
            f"float64 [{batch}, outputs]"
        )
    return output if output.ndim == 2 else output.unsqueeze(1)


def _chosen_targets(table: torch.Tensor, targets: Targets) -> torch.Tensor:
    """Return the target of each example, int64 [batch].

    Args:
        table: the model's outputs, [batch, outputs].

    Raises:
        SaliencyError: they are not valid indices.
    """
    given = targets.cpu() if isinstance(targets, torch.Tensor) else targets
    chosen = checked_targets(given, *table.shape)
    if chosen is None:
        return table.detach().argmax(1)
    return torch.tensor(chosen, device=table.device)


@contextmanager
def _frozen(model: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """Put a model into evaluation mode, with parameters that require no gradients.

    Afterwards its modes, parameters and buffers, and the random state, are as they were.
    """
    in_training = [module for module in model.modules() if module.training]
    tensors = (*model.parameters(), *model.buffers())
    trained = [tensor for tensor in tensors if tensor.is_leaf and tensor.requires_grad]
    buffers = [(buffer, buffer._version, buffer.clone()) for buffer in model.buffers()]
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.enable_grad())
        cuda = [device] if device.type == "cuda" else []
        stack.enter_context(torch.random.fork_rng(devices=cuda))
        try:
            for one in trained:
                one.requires_grad = False
            if in_training:
                model.eval()
            yield
        finally:
            for module in in_training:
                module.training = True
            with torch.no_grad():
                for one, version, values in buffers:
                    if one._version != version:
                        one.copy_(values)
            for one in trained:
                one.requires_grad = True


class _Pictures:
    """Sums pictures of terms; those of one size are added before they are enlarged.

    Args:
        rescaled: whether each term is scaled to [0, 1] first.
    """

    def __init__(self, *, rescaled: bool) -> None:
        self._rescaled = rescaled
        self._by_size: dict[torch.Size, torch.Tensor] = {}

    def add(self, term: Term) -> None:
        """Add a term, if it has pixels."""
        picture = term.picture
        if picture is None:
            return
        if self._rescaled:
            shape = [-1, *[1] * (picture.ndim - 1)]
            least, most = term.least.view(shape), term.most.view(shape)
            picture = (picture - term.layers * least) / (most - least + _EPSILON)
        size = picture.shape[1:]
        self._by_size[size] = self._by_size.get(size, 0) + picture

    def enlarged(self, *lengths: int) -> torch.Tensor | None:
        """Return the sum of all pictures, float32 [batch, pixels...]; None if there is no map.

        Args:
            lengths: number of rows, and of columns if there are any.
        """
        if not self._by_size:
            return None
        mode = "bilinear" if len(lengths) == 2 else "linear"
        pictures = [
            one
            if size == lengths
            else torch.nn.functional.interpolate(
                one.unsqueeze(1), lengths, mode=mode, align_corners=True
            ).squeeze(1)
            for size, one in self._by_size.items()
        ]
        return torch.stack(pictures).sum(0).float()
