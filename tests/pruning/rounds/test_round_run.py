"""One round of a pruning, in this process."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.pruning.rounds import functions
from vinedresser import open_run
from vinedresser.capture import Hook
from vinedresser.errors import ConfigError
from vinedresser.infra.configuration import build
from vinedresser.objects import LocalStorage
from vinedresser.pruning import PruningError, load
from vinedresser.pruning.folders import PRUNED, TUNED, ResultRecord, round_folder
from vinedresser.pruning.rounds.round_record import RoundRecord
from vinedresser.pruning.rounds.round_run import FOLDER, NUMBER, Refusal, Round, main
from vinedresser.pruning.rounds.settings import PruneTable
from vinedresser.pruning.rounds.user_functions import UserFunctions
from vinedresser.store.records import (
    RUN_ID_VARIABLE,
    RUN_VARIABLE,
    new_run,
    read_record,
    write_record,
)

MODULE = "tests.pruning.rounds.functions"
TABLE = PruneTable(
    model=f"{MODULE}:network",
    example=f"{MODULE}:example",
    train=f"{MODULE}:train",
    evaluate=f"{MODULE}:evaluate",
    weights=f"{MODULE}:pretrain",
    amount=4,
)


def execute(folder: Path, number: int, table: PruneTable = TABLE, **tuning: Any) -> RoundRecord:
    """Execute a round in a run of its own."""
    runs = len(list(folder.glob("run-*")))
    with Hook(folder / f"run-{runs}") as hook:
        return Round(folder, number, table, hook).execute(tuning)


@pytest.fixture(scope="module")
def two_rounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pruning")
    for number in range(3):
        execute(folder, number)
    return folder


@pytest.mark.thorough
def test_rounds_follow_each_other(two_rounds: Path) -> None:
    records = [
        read_record(LocalStorage(round_folder(two_rounds, number)), RoundRecord)
        for number in range(3)
    ]
    removed = [(record.number, record.removed, record.run) for record in records if record]
    assert removed == [(0, 0, "run-0"), (1, 4, "run-1"), (2, 4, "run-2")]
    first, *_, last = (record for record in records if record)
    assert first.parameters == sum(
        parameter.numel() for parameter in functions.network().parameters()
    )
    assert first.size == 4 * first.parameters
    assert (first.before, first.figure) == (1.0, 1.0)
    assert sum(first.left.values()) == functions.FILTERS
    assert (last.before, last.figure) == (16 / 24, 16 / 24)
    assert sum(last.left.values()) == 16
    assert last.parameters < first.parameters
    assert last.macs < first.macs
    assert last.checks["filters removed, besides those asked for"] == 0
    assert max(last.checks.values()) < 1e-5


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"latency": "60%"}, "l1, loss per MAC"),
        ({"latency": "60%", "amount": {"0": 2}}, "l1"),
        ({"parameters": "60%"}, "l1"),
        ({"macs": "60%", "losses": None}, "l1"),
    ],
)
def test_filters_go_by_loss_per_operation_for_a_target_of_speed(
    settings: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    table = dataclasses.replace(TABLE, losses=f"{MODULE}:losses")
    table = dataclasses.replace(table, **settings)
    first, second = (execute(tmp_path, number, table) for number in range(2))
    assert (first.criterion, second.criterion) == ("", expected)


@pytest.mark.thorough
def test_models_are_loaded_by_round_and_by_result(two_rounds: Path, tmp_path: Path) -> None:
    def weights(folder: Path) -> list[torch.Tensor]:
        return list(load(folder, functions.network).parameters())

    tuned = weights(round_folder(two_rounds, 1) / TUNED)
    by_round = weights(round_folder(two_rounds, 1))
    assert all(map(torch.equal, tuned, by_round))
    pruned = weights(round_folder(two_rounds, 1) / PRUNED)
    assert not torch.equal(pruned[0], tuned[0]), "it was fine-tuned"
    folder = tmp_path / "copy"
    shutil.copytree(two_rounds, folder)
    write_record(LocalStorage(folder), ResultRecord(1, "it is the best"))
    assert all(map(torch.equal, weights(folder), tuned))
    (folder / ResultRecord.KEY).write_text('{"round": "../elsewhere", "why": ""}')
    with pytest.raises(PruningError, match=r"result\.json: not a valid ResultRecord"):
        load(folder, functions.network)


@pytest.mark.thorough
def test_the_figures_are_metrics_of_the_run(two_rounds: Path) -> None:
    scalars = open_run(two_rounds / "run-1").scalars("metrics", mode="eval")
    values = {name: column.values.tolist() for name, column in scalars.items()}
    assert values["metrics/pruning/before"] == [20 / 24]
    assert values["metrics/pruning/figure"] == [20 / 24]
    low, ratio, high = (
        values[f"metrics/pruning/latency_ratio{end}"][0] for end in ("_low", "", "_high")
    )
    assert 0 < low <= ratio <= high


@pytest.mark.thorough
def test_a_round_continues_with_the_phase_that_is_missing(two_rounds: Path, tmp_path: Path) -> None:
    whole = {path: path.read_bytes() for path in two_rounds.rglob("*.safetensors")}
    for left in ((), (PRUNED,), (PRUNED, TUNED)):
        folder = tmp_path / "-".join(("left", *left))
        shutil.copytree(two_rounds, folder)
        here = round_folder(folder, 2)
        (here / RoundRecord.KEY).unlink()
        for phase in {PRUNED, TUNED} - {*left}:
            # What a kill in the middle of the phase leaves: everything but the weights.
            (here / phase / "weights.safetensors").unlink()
        before = {one: (here / one / "plan-2.json").stat().st_mtime_ns for one in left}
        record = execute(folder, 2)
        assert record.figure == 16 / 24
        assert before == {one: (here / one / "plan-2.json").stat().st_mtime_ns for one in left}
        for path, content in whole.items():
            if "models" in path.parts:
                assert (folder / path.relative_to(two_rounds)).read_bytes() == content


@pytest.mark.thorough
def test_the_teacher_is_the_unpruned_model(two_rounds: Path, tmp_path: Path) -> None:
    shutil.copytree(two_rounds, tmp_path / "copy")
    table = dataclasses.replace(TABLE, teacher=True, train=f"{MODULE}:train_student")
    assert execute(tmp_path / "copy", 3, table).number == 3


@pytest.mark.thorough
def test_amounts_by_round_and_criteria_of_the_user(two_rounds: Path, tmp_path: Path) -> None:
    shutil.copytree(two_rounds, tmp_path / "copy")
    table = dataclasses.replace(TABLE, amount=[1, 2, 3], criterion=f"{MODULE}:first_filters")
    assert execute(tmp_path / "copy", 3, table).removed == 3
    assert execute(tmp_path / "copy", 4, table).removed == 3, "the last one is repeated"
    plan = json.loads((round_folder(tmp_path / "copy", 3) / PRUNED / "plan-3.json").read_text())
    assert plan["criterion"] == "first_filters"


@pytest.mark.thorough
def test_no_more_goes_than_a_target_takes(two_rounds: Path, tmp_path: Path) -> None:
    shutil.copytree(two_rounds, tmp_path / "copy")
    whole = sum(parameter.numel() for parameter in functions.network().parameters())
    table = dataclasses.replace(TABLE, amount=10, parameters="25%")
    record = execute(tmp_path / "copy", 3, table)
    assert record.parameters <= 0.25 * whole
    assert 0 < record.removed < 10


def run_main(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> tuple[str, str]:
    """Return with what the entry of a round exits, and why it refused the round."""
    run = new_run("refused", {})
    write_record(LocalStorage(folder / "refused"), run)
    monkeypatch.setenv(RUN_VARIABLE, str(folder / "refused"))
    monkeypatch.setenv(RUN_ID_VARIABLE, run.id)
    table = dataclasses.replace(TABLE, **changes)
    with pytest.raises(SystemExit) as ended:
        main(**table.to_parameters(), **{FOLDER: str(folder), NUMBER: 1})
    refusal = read_record(LocalStorage(round_folder(folder, 1)), Refusal)
    assert refusal is not None
    return str(ended.value), refusal.reason


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"evaluate": f"{MODULE}:undefined"}, "returned nan; a model is compared by a finite"),
        ({"amount": 23}, "the limits allow 22 of 24"),
        ({"ignore": ["cnv"]}, "ignore: 'cnv' is not a layer"),
        ({"train": f"{MODULE}:trian"}, "has no function trian; did you mean train"),
        ({"weights": "missing.safetensors"}, "missing.safetensors: no such file"),
        ({"weights": "weights.bin"}, "not a file of weights"),
    ],
)
def test_what_no_retry_can_mend_is_refused(
    changes: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "weights" not in changes:
        execute(tmp_path, 0)
    exited, reason = run_main(tmp_path, monkeypatch, **changes)
    assert said in reason
    assert exited == f"vinedresser: {reason}"
    assert not (round_folder(tmp_path, 1) / RoundRecord.KEY).exists()


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "other.pt")
    table = dataclasses.replace(TABLE, weights=str(tmp_path / "other.pt"))
    with pytest.raises(PruningError, match=r"other\.pt: not the weights of this model: .*weight"):
        execute(tmp_path, 0, table)
    wanted = r"a\.pt: not the weights of this model: expected model\.state_dict\(\) as torch\.save"
    table = dataclasses.replace(TABLE, weights=str(tmp_path / "a.pt"))
    for content in (b"", b"a text\n", b"cos\nsystem\n(S'touch obeyed'\ntR."):
        (tmp_path / "a.pt").write_bytes(content)
        # What torch says of them is "EOFError", "97" and how to run the code of the last one.
        with pytest.raises(PruningError, match=rf"{wanted} writes it, tensors by name$"):
            execute(tmp_path, 0, table)
    torch.save({"model": [1]}, tmp_path / "a.pt")
    with pytest.raises(PruningError, match=rf"{wanted} .*, but it has list$"):
        execute(tmp_path, 0, table)


@pytest.mark.thorough
def test_a_fine_tuning_that_leaves_nan_is_refused(two_rounds: Path, tmp_path: Path) -> None:
    shutil.copytree(two_rounds, tmp_path / "copy")
    with pytest.raises(PruningError, match=r"train: left a model that is not finite: 0\.weight"):
        execute(tmp_path / "copy", 3, steps=1, kind="nan")
    assert not (round_folder(tmp_path / "copy", 3) / TUNED).exists()


def test_an_empty_folder_of_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    table = dataclasses.replace(TABLE, weights=str(tmp_path / "weights"))
    with pytest.raises(PruningError, match="weights: holds no weights: the folder is empty"):
        execute(tmp_path, 0, table)


@pytest.mark.thorough
def test_the_checkpoint_of_a_run_is_a_file_of_weights(tmp_path: Path) -> None:
    model = functions.network()
    torch.save(model.state_dict(), tmp_path / "trained.pth")
    execute(tmp_path, 0, dataclasses.replace(TABLE, weights=str(tmp_path / "trained.pth")))
    loaded = load(round_folder(tmp_path, 0), functions.network)
    assert all(map(torch.equal, loaded.parameters(), model.parameters()))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"criterion": "taylor"}, "criterion: 'taylor' is not a criterion; did you mean taylor_"),
        ({"criterion": "taylor_weight"}, "losses: missing"),
        ({"amount": 0}, "amount: must be a number above 0"),
        ({"amount": []}, "amount: is empty"),
        ({"amount": ["10%", "x"]}, "amount: must be a number above 0 or a share"),
        ({"amount": {"conv": -1}}, "amount: must be"),
        ({"latency": "120%"}, "latency: must be"),
        ({"train": "train.py"}, 'train: must be "module:function", or a command such as'),
        ({"weights": ""}, "weights: is empty; leave it out"),
        ({"train": []}, "train: is empty"),
        ({"train": [""]}, "train: is empty"),
        ({"train": ["python", "f.py", "--api-key", "s3cr3t"]}, "train: has what looks like a sec"),
        ({"train": ["python", "f.py"], "teacher": True}, "teacher: not supported with a command"),
    ],
)
def test_settings_are_checked(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        dataclasses.replace(TABLE, **changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_drop": -0.1}, "max_drop: must be at least 0"),
        ({"max_drop": float("nan")}, "max_drop: must be a number, not nan"),
        ({"rounds": 0}, "rounds: must be at least 1"),
        ({"floor_share": 1.0}, "floor_share: must be below 1"),
    ],
)
def test_ranges_of_settings_are_checked(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=rf"^prune\.{said}"):
        build(PruneTable, {**dataclasses.asdict(TABLE), **changes}, "prune")


def test_settings_survive_as_parameters() -> None:
    table = dataclasses.replace(TABLE, ignore=["0"], parameters="50%", teacher=True, max_drop=0.0)
    parameters = json.loads(json.dumps(table.to_parameters()))
    assert PruneTable.from_parameters({**parameters, "lr": 0.1}) == table
    table = dataclasses.replace(TABLE, train=["python", "finetune.py"])
    parameters = json.loads(json.dumps(table.to_parameters()))
    assert PruneTable.from_parameters(parameters) == table
    assert "train" not in table.functions


def test_a_missing_function_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no module tests\.pruning\.rounds\.elsewhere"):
        UserFunctions(dataclasses.replace(TABLE, model=f"{MODULE[:-9]}elsewhere:f"))
