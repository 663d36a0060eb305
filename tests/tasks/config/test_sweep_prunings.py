"""Sweep files whose trials are prunings: what is accepted, and one message for what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tasks.config.test_prune_file import FUNCTIONS, RUN
from vinedresser.errors import ConfigError
from vinedresser.pruning.rounds.settings import PruneTable, tuning_of
from vinedresser.tasks.config.sweep_file import load_sweep

SWEEP = 'metric = "pruning/figure"\ntrials = 3\n'
SPACE = 'prune.criterion = ["l1", "l2"]\nlr = [0.1]\n'


def write(
    folder: Path, space: str = SPACE, prune: str = FUNCTIONS, run: str = RUN, sweep: str = SWEEP
) -> Path:
    path = folder / "sweep.toml"
    path.write_text(f"[sweep]\n{sweep}\n[space]\n{space}\n[prune]\n{prune}\n{run}")
    return path


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_trial_is_a_pruning_with_the_proposed_settings(tmp_path: Path, quote: str) -> None:
    name = f"{quote}prune.criterion{quote}"
    space = f'{name} = ["l2"]\nlr = [0.1]\nprune.amount = {{ int = [2, 4], when = {{ lr = 0.2 }} }}'
    path = write(tmp_path, space.replace("lr = [0.1]", "lr = [0.1, 0.2]"))
    sweep = load_sweep(path)
    proposals = [sweep.study().ask(), sweep.study().ask()]
    assert proposals[0] is not None
    spec = sweep.run_spec(proposals[0])
    assert spec.argv[1:4] == [
        "-m",
        "vinedresser.infra.entry",
        "vinedresser.pruning.rounds.whole_pruning:main",
    ]
    folder = tmp_path / "runs" / "small" / "prunings" / "trial-0000"
    assert spec.parameters.pop("prune.folder") == str(folder)
    table = PruneTable.from_parameters(spec.parameters)
    assert table.criterion == "l2"
    assert table.amount in ("10%", 2, 3, 4)
    assert tuning_of(spec.parameters) == {"lr": proposals[0].parameters["lr"]}


def test_weights_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").touch()
    sweep = load_sweep(write(tmp_path, prune=f'{FUNCTIONS}weights = "w.safetensors"'))
    parameters = sweep.experiment.specs[0].parameters
    assert parameters["prune.weights"] == str(tmp_path / "w.safetensors")
    assert "prune.criterion" not in parameters, "each trial has its own"
    sweep = load_sweep(write(tmp_path, prune=f'{FUNCTIONS}weights = "models:/net/1"'))
    assert sweep.experiment.specs[0].parameters["prune.weights"] == "models:/net/1"
    proposal = sweep.study().ask()
    assert proposal is not None
    fetched = sweep.run_spec(proposal).parameters["prune.weights"]
    assert fetched == str(sweep.fetched_weights) == str(tmp_path / "runs/small/weights")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"run": f'{RUN}command = ["python", "x.py"]'}, "run.command: not supported in a pruning"),
        ({"run": f"{RUN}attach = false"}, "run.attach: must be true in a sweep of prunings"),
        ({"run": f'{RUN}runner = "dask"'}, "run.runner: a pruning runs on this machine"),
        ({"run": f'{RUN}parameters = {{ "prune.x" = 1 }}'}, "names may not begin with prune"),
        ({"sweep": f'{SWEEP}resume = "from"'}, "sweep.resume: not supported in a sweep of prunin"),
        ({"sweep": f'{SWEEP}register = "a"'}, "sweep.register: not supported in a sweep of prun"),
        ({"prune": f"{FUNCTIONS}retries = 2"}, "prune.retries: not supported in a sweep; set swe"),
        ({"prune": f"{FUNCTIONS}register = 'a'"}, "prune.register: not supported in a sweep; reg"),
        ({"prune": f'{FUNCTIONS}criterion = "l1"'}, "space.prune.criterion: also in prune; remove"),
        ({"prune": f"{FUNCTIONS}amuont = 1"}, "prune.amuont: no such key; did you mean amount"),
        ({"prune": f'{FUNCTIONS}weights = "w.pt"'}, "prune.weights: .*w.pt: no such file"),
        ({"space": "prune.critrion = ['l1']"}, "prune.critrion: no such key; did you mean crite"),
        ({"space": "prune.criterion = ['l1', 'x']"}, "space.prune: criterion: 'x' is not a crit"),
        ({"space": "prune.criterion = ['l1', 'taylor_weight']"}, "space.prune: losses: missing"),
        ({"space": "prune.amount = { int = [0, 4] }"}, "prune: amount: must be a number above 0"),
        ({"space": "prune.rounds = { float = [1.0, 4.5] }"}, r"space.prune.rounds: .*not 4\.5"),
        ({"space": "prune.weights = ['a.pt']"}, "space.prune.weights: cannot be searched"),
        ({"space": "prune = ['a.pt']", "prune": "model = 'a:b'"}, "prune.example: is missing"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"sweep\.toml: .*{said}"):
        load_sweep(write(tmp_path, **changes))
