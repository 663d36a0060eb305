"""What a sweep file may say, and what is said of one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from vinedresser.errors import ConfigError
from vinedresser.tasks.config.sweep_file import load_sweep

RUN = '[run]\nname = "search"\ncommand = ["python", "train.py"]\n'
SWEEP = '[sweep]\nmetric = "accuracy"\ntrials = 3\n'
SPACE = "[space]\nlr = { log = [1e-3, 1.0] }\n"


def write(folder: Path, text: str) -> Path:
    """Write a sweep file beside a script."""
    (folder / "train.py").write_text("def main(lr):\n    pass\n", encoding="utf-8")
    path = folder / "sweep.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RUN + SPACE, "sweep: missing; it defines at least metric and trials"),
        (RUN + SWEEP, "space: missing; it defines the search space"),
        (SWEEP + SPACE, "run: missing"),
        (RUN + SWEEP + SPACE + "[variants.a]\n", "variants: not supported in a sweep"),
        (RUN + SWEEP + SPACE + "[remedy]\ntimes = 1\n", "remedy: not supported in a sweep"),
        (RUN + "parameters = { lr = 1 }\n" + SWEEP + SPACE, "space.lr: also in run.parameters"),
        (
            RUN + SWEEP + "seeds = [1]\n" + SPACE + "seed = [1, 2]\n",
            "space.seed: also set by sweep.seeds",
        ),
        (RUN + SWEEP + SPACE + "[rulez]\n", "rulez: unknown table; did you mean rules"),
        (RUN + SWEEP + "sampller = 'tpe'\n" + SPACE, "sweep.sampller: no such key; did you mean"),
        (RUN.replace("train.py", "trian.py") + SWEEP + SPACE, "run.command: .*trian.py"),
        (RUN + 'entry = "train:main"\n' + SWEEP + SPACE, "run: command: give either"),
        ('[run]\nname = "search"\n' + SWEEP + SPACE, "run: command: give either"),
        (
            '[run]\nname = "search"\nentry = "train.main"\n' + SWEEP + SPACE,
            "run: entry: must be \"module:function\", not 'train.main'",
        ),
        (
            '[run]\nname = "search"\nentry = "trian:main"\n' + SWEEP + SPACE,
            "run.entry: no module trian in ",
        ),
        (RUN + SWEEP + SPACE + "[rules.vanishing_gradent]\n", "did you mean vanishing_gradient"),
        (RUN + SWEEP + "trials = 4\n" + SPACE, "sweep.toml: .*overwrite|sweep.toml: .*TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"(?s)sweep\.toml.*{said}"):
        load_sweep(write(tmp_path, text))


@pytest.mark.thorough
def test_a_function_is_called_with_the_parameters_by_name(tmp_path: Path) -> None:
    text = '[run]\nname = "search"\nentry = "train:main"\n' + SWEEP + SPACE
    sweep = load_sweep(write(tmp_path, text))
    proposal = sweep.study().ask()
    assert proposal is not None
    argv = sweep.run_spec(proposal).argv
    assert argv[1:-1] == ["-m", "vinedresser.infra.entry", "train:main"]
    assert argv[-1] == f"lr={proposal.parameters['lr']!r}"


def test_the_judges_note_what_they_suspect_where_trials_are_compared(tmp_path: Path) -> None:
    compared = load_sweep(write(tmp_path, RUN + SWEEP + SPACE))
    assert compared.experiment.suspicions == {"metric": "accuracy", "mode": "eval"}
    alone = load_sweep(write(tmp_path, RUN + SWEEP + "pruner = 'none'\n" + SPACE))
    assert alone.experiment.suspicions == {}
