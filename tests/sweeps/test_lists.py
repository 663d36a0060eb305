"""Choices of a space that are lists, such as the sizes of layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sweeps.studies import FINISHED, begin, study
from vinedresser.errors import ConfigError
from vinedresser.infra.command_line import parameters_as_options
from vinedresser.sweeps.space import Space
from vinedresser.tasks.config.sweep_file import load_sweep

SPACE = Space.parse(
    {
        "layers": [[64], [128, 64], "none"],
        "rate": {"values": [[0.1, 0.2]], "when": {"layers": [[128, 64]]}},
    },
    "space",
)


def test_a_trial_is_passed_lists(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    path = tmp_path / "sweep.toml"
    path.write_text(
        '[run]\nname = "s"\ncommand = ["python", "train.py"]\n[sweep]\nmetric = "a"\n'
        'sampler = "grid"\n[space]\nlayers = [[128, 64], [0.5], "none", 3]\n',
        encoding="utf-8",
    )
    sweep = load_sweep(path)
    study = sweep.study()
    passed = []
    while (proposal := study.ask()) is not None:
        passed.append(sweep.run_spec(proposal).argv[2:])
    assert passed == [
        ["--layers", "128", "64"],
        ["--layers", "0.5"],
        ["--layers", "none"],
        ["--layers", "3"],
    ]
    assert parameters_as_options({"a": [1, 2], "b": True}) == ["--a", "1", "2", "--b"]


def test_a_sweep_of_lists_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    points: list[dict[str, Any]] = [{"layers": [128, 64]}, {"layers": "none"}]
    for number in range(3):
        sweep = study(path, space=SPACE, points=points, sampler="random", pruner="none", trials=3)
        proposal = begin(sweep)
        assert proposal.number == number
        sweep.tell(number, FINISHED, [0.1 * number])
        sweep.close()
    sweep = study(path, space=SPACE, points=points, sampler="random", pruner="none", trials=3)
    tried = [SPACE.decoded(trial.parameters) for trial in sweep.trials()]
    assert tried == [
        {"layers": [128, 64], "rate": [0.1, 0.2]},
        {"layers": "none"},
        {"layers": [64]},
    ]
    assert sweep.trials()[0].configuration == "layers [128, 64], rate [0.1, 0.2]"
    sweep.close()
    again = Space.from_json(SPACE.to_json(), "stored")
    assert again.to_json() == SPACE.to_json()
    assert again.dimensions == SPACE.dimensions


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"layers": [[]]}, r"space\.layers: must contain numbers, strings, true, false, or lists"),
        ({"layers": [[[1]]]}, r"space\.layers: must contain"),
        ({"layers": [[1], [1]]}, r"has a duplicate value"),
        ({"layers": [[1], "[1]"]}, r"has a duplicate value"),
    ],
)
def test_invalid_lists_are_named(space: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Space.parse(space, "space")


def test_a_point_names_one_of_the_lists() -> None:
    with pytest.raises(ConfigError, match=r"one of \[64\], \[128, 64\], 'none', not \[32\]"):
        SPACE.point({"layers": [32]}, "points[0]")
