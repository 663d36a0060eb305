"""The distillation loss against its equation in float64."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vinedresser.pruning import PruningError
from vinedresser.pruning.distillation import distillation_loss

RNG = np.random.default_rng(3)
STUDENT, TEACHER = RNG.normal(scale=4, size=(2, 6, 5))
LABELS = RNG.integers(5, size=6)


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(logits)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def reference(student: NDArray[np.float64], temperature: float, weight: float) -> float:
    total = 0.0
    for hard, soft, wanted, label in zip(
        softmax(student),
        softmax(student / temperature),
        softmax(TEACHER / temperature),
        LABELS,
        strict=True,
    ):
        total -= (1 - weight) * np.log(hard[label])
        total -= weight * temperature**2 * sum(wanted * np.log(soft))
    return total / len(LABELS)


@pytest.mark.parametrize(("temperature", "weight"), [(1, 0.5), (4, 0.9), (0.5, 1), (3, 0)])
def test_loss_and_gradient_follow_the_equation(temperature: float, weight: float) -> None:
    student = torch.tensor(STUDENT, requires_grad=True)
    teacher = torch.tensor(TEACHER, requires_grad=True)
    loss = distillation_loss(
        student, teacher, torch.tensor(LABELS), temperature=temperature, weight=weight
    )
    assert loss.item() == pytest.approx(reference(STUDENT, temperature, weight), rel=1e-12)
    loss.backward()
    assert teacher.grad is None
    found = np.asarray(student.grad)
    step = 1e-6
    for place in np.ndindex(STUDENT.shape):
        moved = np.zeros_like(STUDENT)
        moved[place] = step
        up, down = (reference(STUDENT + one, temperature, weight) for one in (moved, -moved))
        assert found[place] == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-7)


def test_keras_tensors() -> None:
    student, teacher = (keras.ops.convert_to_tensor(one, "float32") for one in (STUDENT, TEACHER))
    labels = keras.ops.convert_to_tensor(LABELS)
    loss = distillation_loss(student, teacher, labels, temperature=2, weight=0.3)
    found = float(keras.ops.convert_to_numpy(loss))
    assert found == pytest.approx(reference(STUDENT, 2, 0.3), rel=1e-5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"temperature": 0}, r"^temperature: 0: must be above 0"),
        ({"temperature": float("nan")}, r"^temperature: nan: must be above 0"),
        ({"weight": 1.5}, r"^weight: 1\.5: must be from 0 to 1"),
        ({"teacher_logits": torch.zeros(6, 4)}, r"the teacher's \[6, 4\]"),
        ({"labels": torch.zeros(6, 5)}, r"labels \[6, 5\]"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, Any], message: str) -> None:
    given = {
        "student_logits": torch.zeros(6, 5),
        "teacher_logits": torch.zeros(6, 5),
        "labels": torch.zeros(6, dtype=torch.int64),
    }
    with pytest.raises(PruningError, match=message):
        distillation_loss(**(given | changed))
