"""A Keras training computes the same bits with everything captured as without a hook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.capture.keras_.tensorflow_trainings import ZOO_TENSORFLOW
from tests.capture.keras_.zoo import ZOO, everything, final_bits
from vinedresser.capture import Hook, open_run

# Raised by Keras itself when it converts a variable to an array.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

_ALL = ZOO | ZOO_TENSORFLOW
# tests/capture/keras_/test_limits.py covers trainings whose last bits may differ.
_EXACT = [name for name in _ALL if name not in ("brain", "jit")]
# Each training is traced several times, which takes seconds.
_QUICK = ("cnn",)
# Of most others, tests/capture/keras_/test_torch.py has the claim on another backend.
_THOROUGH = ("late", "function", "attention", "half", "fused")


def _marks(training: str) -> list[pytest.MarkDecorator]:
    if training in _QUICK:
        return []
    return [pytest.mark.thorough if training in _THOROUGH else pytest.mark.slow]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "training",
    [pytest.param(one, marks=_marks(one)) for one in _EXACT],
)
def test_final_state_has_the_same_bits_as_without_a_hook(training: str, tmp_path: Path) -> None:
    plain = final_bits(_ALL[training])
    hooks: list[Hook] = []

    def attach(model: Any, **more: Any) -> None:
        hooks.append(Hook(tmp_path, collections=everything(2)).watch(model, **more))

    hooked = final_bits(_ALL[training], attach)
    hooks[0].close()
    assert hooked == plain
    run = open_run(tmp_path)
    assert not [problem for problem in hooks[0].problems if "failed" in problem]
    # Guard against an empty capture.
    steps = run.steps("train").tolist()
    assert steps == list(range(0, steps[-1] + 1, 2))
    for kind in ("losses", "weights", "gradients", "inputs", "outputs", "optimizer_state"):
        found = [
            tensor_name for tensor_name in run.tensor_names() if tensor_name.startswith(f"{kind}/")
        ]
        scalars = run.scalar_names() if kind == "losses" else []
        assert found or scalars, kind
