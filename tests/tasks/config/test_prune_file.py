"""prune.toml: what is accepted, and one clear message for what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.paths import ROOT
from vinedresser.errors import ConfigError
from vinedresser.pruning.folders import round_folder
from vinedresser.pruning.rounds.settings import PruneTable
from vinedresser.tasks.config.prune_file import load_pruning

MODULE = "tests.pruning.rounds.functions"
FUNCTIONS = f"""
model = "{MODULE}:network"
example = "{MODULE}:example"
train = "{MODULE}:train"
evaluate = "{MODULE}:evaluate"
"""
RUN = f'[run]\nname = "small"\ncwd = "{ROOT}"\n'


def command(train: str) -> str:
    """Return the keys of a pruning with a command."""
    return FUNCTIONS.replace(f'"{MODULE}:train"', train)


def write(folder: Path, prune: str = FUNCTIONS, rest: str = RUN) -> Path:
    path = folder / "prune.toml"
    path.write_text(f"[prune]\n{prune}\n{rest}", encoding="utf-8")
    return path


def test_a_round_is_a_run_with_the_settings_as_parameters(tmp_path: Path) -> None:
    rest = f"{RUN}parameters = {{ lr = 0.1 }}\n"
    pruning = load_pruning(write(tmp_path, FUNCTIONS + 'amount = [4, "5%"]\n', rest))
    assert pruning.experiment.store == tmp_path / "runs" / "small"
    assert pruning.state == tmp_path / "runs" / "small"
    spec = pruning.run_spec(3)
    assert spec.name == "round-3"
    assert spec.parameters["lr"] == 0.1
    assert spec.parameters["prune.round"] == 3
    assert PruneTable.from_parameters(
        {
            key: value
            for key, value in spec.parameters.items()
            if key not in ("prune.round", "prune.folder")
        }
    ) == (pruning.table)
    assert 'prune.amount=[4, "5%"]' in spec.argv


def test_weights_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").touch()
    pruning = load_pruning(write(tmp_path, f'{FUNCTIONS}weights = "w.safetensors"'))
    assert pruning.table.weights == str(tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    ("prune", "rest", "said"),
    [
        (
            FUNCTIONS,
            f'{RUN}command = ["python", "x.py"]',
            "run.command: not supported in a pruning",
        ),
        (FUNCTIONS, f"{RUN}max_concurrent = 2", "run.max_concurrent: not supported in a pruning"),
        (FUNCTIONS, f"{RUN}[variants.a]", "variants: not supported in a pruning"),
        (FUNCTIONS, f'{RUN}runner = "dask"', "run.runner: a pruning runs on this machine"),
        (FUNCTIONS, f'{RUN}parameters = {{ "prune.x" = 1 }}', "names may not begin with prune"),
        (FUNCTIONS, "", "prune.toml: run: missing"),
        (f"{FUNCTIONS}critrion = 'l1'", RUN, "prune.critrion: no such key; did you mean criterion"),
        (f"{FUNCTIONS}criterion = 'l1x'", RUN, "criterion: 'l1x' is not a criterion"),
        (f"{FUNCTIONS}weights = 'w.pt'", RUN, "prune.weights: .*w.pt: no such file"),
        (FUNCTIONS.replace("tests.", "tsts."), RUN, "prune.model: no module tsts in"),
        ("model = 'a:b'", RUN, "prune.example: is missing"),
        (command("[]"), RUN, "prune: train: is empty"),
        (command("[1]"), RUN, r"prune.train: input should be a valid string, not \[1\]"),
        (command("1"), RUN, "prune.train: input should be a valid string or .* list, not 1"),
        (command('["python", "missing.py"]'), RUN, r"prune.train: .*/missing\.py: no such script"),
        (command('["no-such-program"]'), RUN, "prune.train: no-such-program: no such program"),
        (command('["true"]'), f"{RUN}attach = false", "run.attach: must be true with a command"),
    ],
)
def test_what_is_wrong_is_named(prune: str, rest: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        load_pruning(write(tmp_path, prune, rest))


def test_a_file_without_the_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "prune.toml"
    path.write_text(RUN, encoding="utf-8")
    with pytest.raises(ConfigError, match="prune: missing"):
        load_pruning(path)


def test_branches_have_names_of_their_own(tmp_path: Path) -> None:
    path = write(tmp_path)
    with pytest.raises(ConfigError, match=r'must name a round of small, such as "round-3"'):
        load_pruning(path, branch="3")
    with pytest.raises(ConfigError, match="no such round of small"):
        load_pruning(path, branch="round-3")
    there = round_folder(tmp_path / "runs" / "small", 3)
    there.mkdir(parents=True)
    with pytest.raises(ConfigError, match="or incomplete"):
        load_pruning(path, branch="round-3")
    (there / "round.json").touch()
    assert load_pruning(path, branch="round-3").name == "small-from-3"
    assert load_pruning(path).marked("now").name == "small-now"
