"""Hyperparameters from the arguments of a script, as argparse, click and hydra read them."""

from __future__ import annotations

from typing import Any

import pytest

from vinedresser.tasks.lifecycle.run_script import parameters_of_arguments


@pytest.mark.parametrize(
    ("arguments", "parameters"),
    [
        ("", {}),
        ("--lr 0.1 --fast -b 32", {"lr": 0.1, "fast": True, "b": 32}),
        ("--lr=1e-3 --name=a=b", {"lr": 0.001, "name": "a=b"}),
        ("--shift -1 --low -.5", {"shift": -1, "low": -0.5}),
        ("--size 3 4 --eps 1e-8 data.bin", {"size": [3, 4], "eps": 1e-8, "arguments": "data.bin"}),
        ("cifar10 model.depth=3 ++a=x", {"arguments": "cifar10", "model.depth": 3, "a": "x"}),
        ("--shuffle False --x 1 --x 2", {"shuffle": False, "x": [1, 2]}),
        ("--limit inf --seed 007", {"limit": "inf", "seed": 7}),
    ],
)
def test_arguments_are_parameters(arguments: str, parameters: dict[str, Any]) -> None:
    assert parameters_of_arguments(arguments.split()) == parameters
