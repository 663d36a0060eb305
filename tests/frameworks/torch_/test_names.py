"""Parameters are listed as the model is, however it has changed."""

from __future__ import annotations

from typing import Any

from torch import nn

from vinedresser.frameworks.torch_.names import Names


def test_changes_of_the_model_show_in_the_list() -> None:
    model: Any = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 1, bias=False)))
    names = Names(model)

    def listed() -> dict[str, nn.Parameter]:
        return {parameter.weight: parameter.value for parameter in names.parameters()}

    right = {"weights/0.weight", "biases/0.bias", "weights/1.0.weight"}
    assert set(listed()) == set(listed()) == right
    fresh = nn.Parameter(model[0].weight.detach().clone())
    model[0].weight = fresh
    assert listed()["weights/0.weight"] is fresh
    # Past `nn.Module.__setattr__`, as torch's own tools do.
    other = model[1][0]._parameters["weight"] = nn.Parameter(fresh.detach().clone())
    assert listed()["weights/1.0.weight"] is other
    model[1].append(nn.Linear(1, 1, bias=False))
    assert set(listed()) == right | {"weights/1.1.weight"}
    model[1][1].weight = other
    assert set(listed()) == right
    del model[1][1]
    model[0].bias = None
    assert set(listed()) == right - {"biases/0.bias"}
