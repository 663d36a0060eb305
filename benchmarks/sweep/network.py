"""One training of a sweep: a perceptron that learns digits, judged by the default rules."""

from __future__ import annotations

import logging
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from benchmarks.sweep.curve import Curve
from benchmarks.sweep.spaces import EPOCHS
from vinedresser.capture import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.engine import Engine
from vinedresser.rules.judge import judge
from vinedresser.rules.presets import preset_table
from vinedresser.rules.registry import rules_from_table
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.store.reading.step import Step
from vinedresser.sweeps.dimension import Choice

__all__ = ["train_curve"]

_BATCH = 64
_HELD_OUT = 360
_ACTIVATIONS = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh}


def train_curve(parameters: dict[str, Choice], seed: int) -> Curve:
    """Train one configuration to its end, regardless of the rules, and judge the run."""
    warnings.simplefilter("ignore")
    logging.getLogger("vinedresser").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rules = rules_from_table(preset_table("default"))
    x, y = _digits(seed)
    model = _network(parameters)
    optimizer = torch.optim.SGD(model.parameters(), lr=float(parameters["lr"]), momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    batches = -(-(len(x) - _HELD_OUT) // _BATCH)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        with Hook(
            run,
            collections=capture_for(rules).collections,
            parameters=dict(parameters),
            total_steps=EPOCHS * batches,
        ) as hook:
            hook.watch(model, loss=loss_fn, optimizer=optimizer)
            train, held_out = (x[:-_HELD_OUT], y[:-_HELD_OUT]), (x[-_HELD_OUT:], y[-_HELD_OUT:])
            accuracies = []
            for _ in range(EPOCHS):
                _train_epoch(model, loss_fn, optimizer, train)
                accuracies.append(_evaluate(hook, model, loss_fn, held_out))
        seconds = time.perf_counter() - begun
        suspected: list[str] = []
        stop = _stop(judge(open_run(run), rules, on_step=partial(_note, suspected)))
    if stop is None:
        return Curve(parameters, accuracies, seconds, suspected=suspected)
    after = (stop.step + 1) / batches
    return Curve(parameters, accuracies, seconds, after, stop.rule, stop.seen, suspected)


def _note(suspected: list[str], step: Step, engine: Engine) -> None:
    """Record the suspicion at the evaluation that ends an epoch."""
    if "metrics/accuracy" in step.scalars and step.mode == "eval":
        found = [
            suspicion.rule for suspicion in engine.suspicions() if suspicion.severity == "stop"
        ]
        suspected.append(found[0] if found else "")


def _digits(seed: int) -> tuple[Tensor, Tensor]:
    """Return shuffled digits: x float32 [1797, 64] in 0..1, and classes int64 [1797].

    The last rows are held out.
    """
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(seed))
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    return x[order], torch.tensor(digits.target)[order]


def _network(parameters: dict[str, Choice]) -> nn.Sequential:
    """Return the perceptron; ``init`` scales Glorot's initial weights."""
    layers: list[nn.Module] = []
    width = 64
    for _ in range(int(parameters["depth"])):
        layers += [nn.Linear(width, 64), _ACTIVATIONS[str(parameters["activation"])]()]
        width = 64
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("weight"):
                # Glorot's scale times the configured factor.
                nn.init.xavier_uniform_(weight, gain=float(parameters["init"]))
    return model


def _train_epoch(
    model: nn.Module,
    loss_fn: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: tuple[Tensor, Tensor],
) -> None:
    x, y = data
    for rows in torch.randperm(len(x)).split(_BATCH):
        optimizer.zero_grad()
        loss_fn(model(x[rows]), y[rows]).backward()
        optimizer.step()


def _evaluate(
    hook: Hook, model: nn.Module, loss_fn: nn.Module, data: tuple[Tensor, Tensor]
) -> float:
    """Return the accuracy, and report it to the hook."""
    x, y = data
    model.eval()
    with torch.no_grad(), hook.mode("eval"):
        scores = model(x)
        loss_fn(scores, y)
        accuracy = float((scores.argmax(1) == y).float().mean())
        hook.metric("accuracy", accuracy)
    model.train()
    return accuracy


def _stop(findings: list[Finding]) -> Finding | None:
    """Return the finding that would have stopped the run."""
    return next((finding for finding in findings if finding.severity == "stop"), None)
