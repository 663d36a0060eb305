"""Rules judge the steps that a plain numpy loop reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES, rules_from_table

Array = NDArray[np.float64]


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


@dataclass
class Perceptron:
    """A network for handwritten digits with a manual backward pass."""

    widths: tuple[int, ...]
    act: str
    rate: float
    hook: Hook
    weights: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        generator = np.random.default_rng(0)
        for inner, outer in zip(self.widths, self.widths[1:], strict=False):
            scale = np.sqrt(2 / inner) if self.act == "relu" else np.sqrt(1 / inner)
            self.weights.append(generator.standard_normal((inner, outer)) * scale)

    def forward(self, x: Array) -> list[Array]:
        layers = [x]
        for number, weight in enumerate(self.weights):
            z = layers[-1] @ weight
            if number < len(self.weights) - 1:
                z = np.maximum(z, 0) if self.act == "relu" else sigmoid(z)
            layers.append(z)
        return layers

    def loss(self, logits: Array, y: NDArray[np.int64]) -> tuple[float, Array]:
        """Return the cross entropy and its gradient; float64, [B, 10]."""
        shifted = logits - logits.max(axis=1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        slope = np.exp(logs)
        slope[np.arange(len(y)), y] -= 1
        return float(-logs[np.arange(len(y)), y].mean()), slope / len(y)

    def step(self, x: Array, y: NDArray[np.int64]) -> None:
        layers = self.forward(x)
        loss, slope = self.loss(layers[-1], y)
        gradients: dict[int, Array] = {}
        for number in reversed(range(len(self.weights))):
            gradients[number] = layers[number].T @ slope
            if number:
                slope = slope @ self.weights[number].T
                out = layers[number]
                slope *= out > 0 if self.act == "relu" else out * (1 - out)
        # In the order of the layers, which the rule on vanishing gradients uses.
        for number in range(len(self.weights)):
            self.hook.save(f"weights/{number}", self.weights[number])
            self.hook.save(f"gradients/{number}", gradients[number])
            self.weights[number] -= self.rate * gradients[number]
        accuracy = float((layers[-1].argmax(axis=1) == y).mean())
        self.hook.step(inputs=x, labels=y, outputs=layers[-1], loss=loss, metrics={"a": accuracy})

    def evaluate(self, x: Array, y: NDArray[np.int64]) -> None:
        logits = self.forward(x)[-1]
        with self.hook.mode("eval"):
            self.hook.step(labels=y, outputs=logits, loss=self.loss(logits, y)[0])


def train(
    path: Path,
    *,
    widths: tuple[int, ...] = (64, 32, 10),
    act: str = "relu",
    rate: float = 0.3,
    steps: int = 500,
    examples: int = 1200,
    wrong: float = 0.0,
) -> set[str]:
    """Train and judge; return the names of the rules that fired.

    Of the digits trained on, a share has a wrong label.
    """
    rules = rules_from_table({name: {} for name in RULES})
    asked = capture_for(rules).collections
    images, digits = load_digits(return_X_y=True)
    images = images / 16
    generator = np.random.default_rng(1)
    mixed = generator.random(len(digits)) < wrong
    mixed[1200:] = False
    digits = np.where(mixed, generator.integers(10, size=len(digits)), digits)
    with Hook(path, collections=asked, total_steps=steps) as hook, np.errstate(all="ignore"):
        net = Perceptron(widths, act, rate, hook)
        for step in range(steps):
            chosen = generator.integers(examples, size=32)
            net.step(images[chosen], digits[chosen])
            if step % 20 == 19:
                net.evaluate(images[1200:], digits[1200:])
    return {finding.rule for finding in judge(open_run(path), rules) if finding.rule in RULES}


@pytest.mark.thorough
def test_a_healthy_loop_is_left_alone(tmp_path: Path) -> None:
    assert train(tmp_path / "run") == set()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        ("loss_not_decreasing", {"rate": 1e-7}),
        ("nonfinite", {"rate": 1e200}),
        ("vanishing_gradient", {"widths": (64, *[16] * 9, 10), "act": "sigmoid", "rate": 0.05}),
        ("overfitting", {"examples": 60, "widths": (64, 256, 10), "rate": 0.5, "wrong": 0.4}),
    ],
)
def test_what_is_wrong_is_found(tmp_path: Path, rule: str, wrong: dict[str, object]) -> None:
    assert rule in train(tmp_path / "run", **wrong)  # type: ignore[arg-type]
