"""Methods of Captum: SmoothGrad, integrated gradients and Grad-CAM."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from vinedresser.errors import MissingDependency, SaliencyError
from vinedresser.explain.saliency.options import Peer

# Smilkov et al., 2017: 50 samples hardly differ; noise of 10 to 20 % of the range.
_SAMPLES, _NOISE = 25, 0.15
# Points of Gauss-Legendre quadrature, and inputs that are computed at once.
_POINTS, _AT_ONCE = 50, 32

_Forward = Callable[[torch.Tensor], torch.Tensor]


def attributions(
    model: torch.nn.Module,
    forward: _Forward,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    method: Peer,
) -> torch.Tensor:
    """Return signed attributions of a model in evaluation mode.

    Args:
        forward: runs it: [batch, ...] to [batch, outputs].
        inputs: floating-point, [batch, ...].
        targets: int64 [batch].
        method: "smoothgrad" (Smilkov et al., 2017): mean of the gradients of 25 inputs with noise;
            "integrated_gradients" (Sundararajan et al., 2017): from an input of zeros;
            "grad_cam" (Selvaraju et al., 2017): the last layer with rows and columns.

    Returns:
        The shape of the inputs; for "grad_cam" [batch, 1, rows, columns].

    Raises:
        MissingDependency: Captum is not installed.
        SaliencyError: "grad_cam" and no layer has rows and columns.
    """
    try:
        import captum.attr
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"method={method!r} needs the package captum: pip install 'vinedresser[captum]'"
        ) from error
    x = inputs.detach().clone().requires_grad_()

    def run(given: torch.Tensor) -> torch.Tensor:
        # The model may change its input in place, but not a leaf.
        return forward(given.clone())

    found: torch.Tensor
    if method == "integrated_gradients":
        at_once = max(len(x), _AT_ONCE)
        found = captum.attr.IntegratedGradients(run).attribute(
            x, target=targets, n_steps=_POINTS, internal_batch_size=at_once
        )
    elif method == "grad_cam":
        layer = _last_with_pixels(model, forward, inputs)
        found = captum.attr.LayerGradCam(run, layer).attribute(
            x, target=targets, relu_attributions=True
        )
    else:
        tunnel = captum.attr.NoiseTunnel(captum.attr.Saliency(run))
        found = torch.cat([_smooth(tunnel, *one) for one in zip(inputs, targets, strict=True)])
    return found.detach()


def _smooth(tunnel: Any, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the mean gradient around one input; the noise does not depend on the others."""
    torch.manual_seed(0)
    noise = _NOISE * float((x.amax() - x.amin()).detach())
    one = x.detach().unsqueeze(0).requires_grad_()
    result: torch.Tensor = tunnel.attribute(
        one, nt_samples=_SAMPLES, stdevs=noise, target=target.view(1), abs=False
    )
    return result


def _last_with_pixels(
    model: torch.nn.Module, forward: _Forward, inputs: torch.Tensor
) -> torch.nn.Module:
    """Return the layer that was the last to return rows and columns, and was called once."""
    ended: list[torch.nn.Module] = []

    def note(module: torch.nn.Module, _: Any, output: Any) -> None:
        pixels = output.shape[2:].numel() if isinstance(output, torch.Tensor) else 0
        if pixels > 1 and output.ndim == 4:
            ended.append(module)

    with ExitStack() as stack, torch.no_grad():
        for module in model.modules():
            if module is not model:
                stack.enter_context(module.register_forward_hook(note))
        forward(inputs.clone())
    for module in reversed(ended):
        if ended.count(module) == 1:
            return module
    raise SaliencyError(
        "method='grad_cam' needs a layer that is called once and returns "
        "[batch, channels, rows, columns]"
    )
