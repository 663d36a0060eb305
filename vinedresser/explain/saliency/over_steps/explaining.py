"""Saliency of the same examples with the weights of several steps."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError
from vinedresser.explain.saliency.explanation import saliency
from vinedresser.explain.saliency.model_input import as_input, plain_inputs
from vinedresser.explain.saliency.over_steps.weights import captured_steps, load_step
from vinedresser.explain.saliency.result import Saliency
from vinedresser.explain.saliency.spread import spread
from vinedresser.store.reading.reader import Run
from vinedresser.store.step_record import Mode

__all__ = ["SaliencyOverSteps", "captured_examples", "check_model", "saliency_over_steps"]

_EXAMPLES = 6


@dataclass(frozen=True, eq=False)
class SaliencyOverSteps:
    """Explanations of the same examples and targets at several steps.

    Attributes:
        inputs: the examples, [N, ...].
        origin: where the examples were captured, as text.
        steps: the steps, ascending.
        results: explanation of the examples with the weights of each step; the targets are the
            classes that the model predicts at the last step.
    """

    inputs: NDArray[Any]
    origin: str
    steps: Sequence[int]
    results: Sequence[Saliency]


def saliency_over_steps(run: Run, model: Any) -> SaliencyOverSteps:
    """Explain up to 6 captured examples with the weights of up to 7 captured steps.

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
    inputs, origin = captured_examples(run)
    mode, captured = captured_steps(run, model)
    steps = spread(captured)
    given = as_input(model, plain_inputs(inputs))
    results: list[Saliency] = []
    targets: list[int] | None = None
    for step in reversed(steps):
        load_step(run, model, mode, step)
        results.append(saliency(model, given, targets))
        targets = results[0].targets.tolist()
    return SaliencyOverSteps(inputs, origin, steps, results[::-1])


def check_model(model: Any) -> None:
    """Check what the function of the user's returned.

    Raises:
        ConfigError: it is not a torch.nn.Module.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        raise ConfigError(f"--model returned {type(model).__name__}; return a torch.nn.Module")


def captured_examples(run: Run) -> tuple[NDArray[Any], str]:
    """Return rows of the first input of the model, of the last evaluation or else train step.

    Raises:
        ConfigError: none were captured.
    """
    modes: tuple[Mode, ...] = ("eval", "train")
    for mode in modes:
        for name in run.tensor_names(collection="model_inputs"):
            view = run.tensor(name)
            steps = view.steps(mode)
            if len(steps):
                value = view.value(int(steps[-1]), mode)
                if value.ndim > 1 and len(value):
                    return np.array(value[:_EXAMPLES]), f"{mode} step {int(steps[-1]):,}"
    raise ConfigError(
        f"{run.path}: no inputs of the model were captured; set [capture.model_inputs] "
        "every = 100, rows = 6"
    )
