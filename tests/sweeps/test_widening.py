"""A sweep that is resumed with a wider space: what may change, and what samplers make of it."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.flows.test_sweep_resume import SWEEP
from tests.sweeps.studies import FINISHED, begin, study
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.study import Study

NARROW: dict[str, Any] = {
    "lr": {"log": [1e-3, 1e-2]},
    "layers": {"int": [2, 4], "step": 2},
    "act": ["relu", "tanh"],
    "sizes": [[8, 8], [16]],
}
WIDE: dict[str, Any] = {
    "lr": {"log": [1e-4, 1.0]},
    "layers": {"int": [0, 8], "step": 2},
    # In another order.
    "act": ["gelu", "tanh", "relu"],
    "sizes": [[16], [8, 8]],
}


def space(table: dict[str, Any]) -> Space:
    return Space.parse(table, "space")


@pytest.mark.parametrize(
    ("changed", "allowed"),
    [
        ({}, True),
        ({"lr": {"log": [1e-3, 0.1]}}, True),
        ({"lr": {"log": [1e-3, 0.1], "grid": 3}}, True),
        ({"lr": {"log": [2e-3, 0.1]}}, False),
        ({"lr": {"float": [1e-3, 0.1]}}, False),
        ({"layers": {"int": [2, 9], "step": 2}}, True),
        ({"layers": {"int": [1, 4], "step": 2}}, False),
        ({"layers": {"int": [2, 4]}}, False),
        ({"act": ["relu", "tanh", "gelu"]}, True),
        ({"act": ["relu", "gelu"]}, False),
        ({"act": {"float": [0.0, 1.0]}}, False),
        ({"lr": {"log": [1e-3, 1e-2], "when": {"act": "relu"}}}, False),
        # The script would get a text where it got a list.
        ({"sizes": ["[8, 8]", "[16]", "[4]"]}, False),
        ({"sizes": [[16], [8, 8], [4]]}, True),
        ({"more": [1, 2]}, False),
    ],
)
def test_a_space_may_grow_and_nothing_else(changed: dict[str, Any], allowed: bool) -> None:
    before = replace(SWEEP, space=space(NARROW).to_json())
    after = replace(SWEEP, space=space({**NARROW, **changed}).to_json())
    said = before.differences(after)
    assert (not said) is allowed
    if not allowed:
        assert said[0].startswith("space.")
        assert said[-1].startswith("a space can only be widened")
    # Other differences are said all the same.
    assert "epochs: was missing, is 3" in before.differences(replace(after, epochs=3))
    assert before.resumed(after).space == after.space
    lacking = {name: one for name, one in NARROW.items() if name != "lr"}
    assert before.differences(replace(SWEEP, space=space(lacking).to_json()))


def run(one: Study, trials: int) -> list[dict[str, Any]]:
    found = []
    for _ in range(trials):
        proposal = begin(one)
        lr = float(proposal.parameters["lr"])
        one.tell(proposal.number, FINISHED, [lr])
        found.append(dict(proposal.parameters))
    return found


SAMPLERS = ["random", {"name": "tpe", "startup": 4}, {"name": "nsgaii", "population": 4}]


@pytest.mark.parametrize(
    "sampler",
    [*SAMPLERS, "cmaes", pytest.param({"name": "gp", "startup": 4}, marks=pytest.mark.slow)],
)
def test_every_sampler_searches_the_wider_space(tmp_path: Path, sampler: Any) -> None:
    if sampler == "cmaes" and importlib.util.find_spec("cmaes") is None:
        pytest.skip("needs cmaes")
    if isinstance(sampler, dict) and sampler["name"] == "gp":
        pytest.importorskip("torch")
    path = tmp_path / "journal.log"
    settings = {"sampler": sampler, "pruner": "none", "trials": 50}
    narrow = study(path, space(NARROW), **settings)
    before = run(narrow, 12)
    left = begin(narrow)
    narrow.close()
    wide = study(path, space(WIDE), **settings)
    # Nothing is lost of what was tried, nor of a trial that was running.
    assert [one.parameters for one in wide.trials()] == [*before, left.parameters]
    (again,) = wide.again()
    assert again.parameters == left.parameters
    wide.tell(again.number, FINISHED, [0.001])
    after = run(wide, 37)
    assert any(one["lr"] > 1e-2 for one in after)
    assert any(one["act"] == "gelu" for one in after)
    assert all(space(WIDE).point(one, "") == one for one in after)
    wide.close()
    # Also for the process after that, and for the importance of hyperparameters.
    longer = study(path, space(WIDE), **settings | {"trials": 52})
    assert [one.parameters for one in longer.trials()][13:] == after
    run(longer, 2)
    assert set(longer.importance()) == {"lr", "layers", "act", "sizes"}
    longer.close()


def test_a_sampler_learns_from_the_values_of_the_narrow_space(tmp_path: Path) -> None:
    """With the choices in another order, tanh stays the good one."""
    path = tmp_path / "journal.log"
    settings = {"sampler": {"name": "tpe", "startup": 10}, "pruner": "none", "trials": 60}
    one = study(path, space(NARROW), **settings)
    for turn in range(2):
        for _ in range(30):
            proposal = begin(one)
            good = 1.0 if proposal.parameters["act"] == "tanh" else 0.0
            one.tell(proposal.number, FINISHED, [good])
        if turn == 0:
            one.close()
            one = study(path, space(WIDE), **settings)
    chosen = [trial.parameters["act"] for trial in one.trials()[30:]]
    assert chosen.count("tanh") > 15
    one.close()


def test_a_grid_continues_with_its_new_configurations(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    table: dict[str, Any] = {"lr": {"log": [1e-3, 1e-1], "grid": 2}, "act": ["relu"]}
    settings = {"sampler": "grid", "pruner": "none", "trials": None}
    one = study(path, space(table), **settings)
    run(one, 2)
    assert one.ask() is None
    one.close()
    wider = study(path, space({**table, "act": ["tanh", "relu"]}), **settings)
    assert {one["act"] for one in run(wider, 2)} == {"tanh"}
    assert wider.ask() is None
    wider.close()
