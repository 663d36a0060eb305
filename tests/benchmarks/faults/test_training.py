"""Cases of the fault benchmark are read, trained and judged."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray

from benchmarks.faults import cases as faults_cases
from benchmarks.faults.cases import case_of, load_cases
from benchmarks.faults.classes import right_words
from benchmarks.faults.data import load_data, mixed_axes
from benchmarks.faults.judging import Job, judge_case
from benchmarks.faults.networks.losses import LOSSES
from benchmarks.faults.training import train
from tests.benchmarks.faults.iris import IRIS, iris
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.errors import ConfigError
from vinedresser.store.reading.reader import open_run

FOLDER = Path(faults_cases.__file__).parent


@pytest.mark.parametrize("name", ["cases.yaml", "more_cases.yaml"])
def test_the_case_files_are_valid(name: str) -> None:
    cases = load_cases(FOLDER / name)
    assert all(case.expect is not None for case in cases)
    assert all(right_words(case.fault_class) for case in cases if case.faulty)
    assert {case.faulty for case in cases} == {True, False}


# Changes of a case, and words of the message.
MISTAKES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"kind": "sick"}, ("(iris).kind", "sick", "faulty, healthy")),
    ({"colour": 1}, ("colour",)),
    ({"data": {"name": "irises"}}, ("(iris).data.name", "irises", "iris")),
    ({"data": {"name": "iris", "labels": "leek"}}, ("(iris).data.labels", "did you mean leak")),
    ({"data": {"name": "iris", "lables": "leak"}}, ("(iris).data", "did you mean labels")),
    ({"model": []}, ("(iris).model", "list of layers")),
    ({"model": [{"dense": 0}]}, ("(iris).model[0].dense", "0")),
    ({"model": [{"dense": 3, "act": "rleu"}]}, ("(iris).model[0].act", "did you mean relu")),
    ({"model": [{"dense": 3, "flatten": True}]}, ("(iris).model[0]", "dense and flatten")),
    ({"model": [{"dense": 3, "units": 4}]}, ("(iris).model[0]", "units")),
    ({"model": [{"dense": 3, "init": "normal"}]}, ("(iris).model[0].init", "normal:0.05")),
    ({"model": [{"dropout": 1.5}]}, ("(iris).model[0].dropout", "1.5")),
    ({"init": "glorot"}, ("(iris).init", "glorot")),
    ({"loss": "mean_sqared_error"}, ("(iris).loss", "did you mean mean_squared_error")),
    ({"optimizer": {"name": "adma"}}, ("(iris).optimizer.name", "did you mean adam")),
    ({"optimizer": {"name": "adam", "lr": "fast"}}, ("(iris).optimizer.lr", "fast")),
    ({"batch": 0}, ("(iris).batch", "0")),
    ({"train": {"zero_gard": False}}, ("(iris).train", "did you mean zero_grad")),
    ({"train": {"mode": "evil"}}, ("(iris).train.mode", "did you mean eval")),
    ({"expect": {"any": [["accuracy", "<", 1]]}}, ("(iris).expect.any", "accuracy")),
    ({"expect": {"any": [["acc", "=<", 1]]}}, ("(iris).expect.any", "=<")),
    ({"expect": {}, "steps": None}, ("(iris).steps", "None")),
]


@pytest.mark.parametrize(("changes", "words"), MISTAKES, ids=str)
def test_a_mistake_is_reported_with_its_case_and_key(
    changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as error:
        iris(**changes)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_missing_keys_and_duplicate_ids_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="loss is missing"):
        case_of({key: value for key, value in IRIS.items() if key != "loss"})
    text = (FOLDER / "cases.yaml").read_text()
    twice = tmp_path / "twice.yaml"
    twice.write_text(text + text.partition("cases:\n")[2])
    with pytest.raises(ConfigError, match="DF-46995209-F: duplicate id"):
        load_cases(twice)


def test_incompatible_layers_are_reported(tmp_path: Path) -> None:
    case = iris(model=[{"conv": [4, 3]}, {"dense": 3}])
    with pytest.raises(ConfigError, match=r"model\[0\]: conv takes images"):
        train(case, tmp_path / "run", CaptureConfig())


LAYERS = [
    ("digits_img", [{"conv": [4, 3]}, {"bn": 0.1}, {"act": "elu:0.5"}, {"avgpool": 2}, "flatten"]),
    ("digits_img", [{"conv": [4, 5, 2], "act": "hard_sigmoid"}, {"globalpool": True}]),
    ("digits_seq", [{"lstm": 6, "return_sequences": True}, {"gru": 5, "bidirectional": True}]),
    ("waves", [{"conv1d": [4, 3], "act": "swish"}, {"simplernn": 4, "act": "relu"}]),
    ("tokens", [{"embedding": [50, 4]}, {"globalpool": "max"}, {"layernorm": True}]),
    ("tokens", [{"embedding": 4}, {"flatten": True}, {"dense": 4, "act": "selu", "repeat": 3}]),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("data", "layers"), LAYERS, ids=str)
def test_layers_of_all_kinds_train(data: str, layers: list[Any], tmp_path: Path) -> None:
    case = iris(data={"name": data}, model=[*layers, {"dense": 10}], steps=3)
    trained = train(case, tmp_path / "run", CaptureConfig())
    assert len(trained.history.losses) == 3
    assert np.isfinite(trained.history.losses).all()


@pytest.mark.parametrize("word", sorted(set(LOSSES)))
def test_losses_of_all_kinds_train(word: str, tmp_path: Path) -> None:
    ends = {"probabilities": "softmax", "log_probabilities": "log_softmax"}
    act = ends.get(LOSSES[word].outputs, "softplus")
    case = iris(model=[{"dense": 3, "act": act}], loss=word, steps=2)
    trained = train(case, tmp_path / "run", CaptureConfig())
    assert np.isfinite(trained.history.losses).all()


OPTIMIZERS = [
    {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True, "decay": 0.01},
    {"name": "adam", "learning_rate": 0.1, "beta_1": 0.8, "epsilon": 1e-6, "amsgrad": True},
    {"name": "rmsprop", "lr": 0.1, "rho": 0.95, "momentum": 0.5, "centered": True},
    {"name": "sgd", "lr": -1000.0, "clipnorm": 1.0},
    *({"name": name} for name in ("adamax", "nadam", "adagrad", "adadelta", "adamw")),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_optimizers_of_all_kinds_step(optimizer: dict[str, Any], tmp_path: Path) -> None:
    trained = train(iris(optimizer=optimizer, steps=2), tmp_path / "run", CaptureConfig())
    assert not torch.equal(trained.first["0.weight"], trained.model.state_dict()["0.weight"])


def keras_bce(output: NDArray[Any], target: NDArray[Any]) -> float:
    p = output.clip(1e-7, 1 - 1e-7)
    return float(np.mean(-target * np.log(p) - (1 - target) * np.log(1 - p)))


def keras_cce(output: NDArray[Any], target: NDArray[Any]) -> float:
    p = (output / output.sum(1, keepdims=True)).clip(1e-7, 1 - 1e-7)
    return float(np.mean(-(target * np.log(p)).sum(1)))


@pytest.mark.parametrize(("word", "reference"), [("bce", keras_bce), ("cce", keras_cce)])
def test_losses_of_probabilities_equal_those_of_keras(
    word: str, reference: Callable[[NDArray[Any], NDArray[Any]], float]
) -> None:
    output = np.array([[0.2, 0.0, 1.0], [0.5, 0.7, 0.9]], np.float32)
    target = np.array([[0, 1, 0], [0, 0, 1]], np.float32)
    found = LOSSES[word].make()(torch.tensor(output), torch.tensor(target))
    assert float(found) == pytest.approx(reference(output, target), rel=1e-4)


def test_labels_are_shuffled_and_leaked() -> None:
    clean = load_data({"name": "iris"})
    assert clean.x.mean(0).abs().max() < 1e-5
    shuffled = load_data({"name": "iris", "labels": "shuffled"})
    assert torch.equal(shuffled.x, clean.x)
    assert torch.equal(shuffled.y.bincount(), clean.y.bincount())
    assert 0.2 < (shuffled.y == clean.y).float().mean() < 0.5
    leak = load_data({"name": "iris", "labels": "leak"})
    assert torch.equal(leak.x_val, leak.x[: len(leak.x_val)])
    batch = torch.arange(6.0).reshape(2, 3)
    assert mixed_axes(batch).tolist() == [[0, 3, 1], [4, 2, 5]]
    raw = load_data({"name": "digits_flat255"})
    assert (float(raw.x.min()), float(raw.x.max()), raw.x.shape[1]) == (0, 255, 64)


def test_gradients_accumulate_without_zero_grad(tmp_path: Path) -> None:
    """With the same rows and constant weights, the n-th gradient is n times the first."""
    case = iris(
        model=[{"dense": 3}],
        optimizer={"name": "sgd", "lr": 0.0},
        train={"zero_grad": False, "same_batch": True},
        steps=4,
    )
    capture = CaptureConfig.from_json({"gradients": {"every": 1, "reductions": ["l2"]}})
    train(case, tmp_path / "run", capture)
    norms = open_run(tmp_path / "run").reductions("l2")["gradients/0.weight"].values
    assert norms / norms[0] == pytest.approx([1, 2, 3, 4], rel=1e-5)


def test_parameters_are_frozen_omitted_and_cut_off(tmp_path: Path) -> None:
    model = [{"dense": 4, "act": "tanh"}, {"dense": 4, "act": "tanh"}, {"dense": 3}]
    for setting, still in (
        ({"frozen": [0]}, ["0.weight"]),
        ({"not_in_optimizer": [1]}, ["2.weight"]),
        ({"detach": 2}, ["0.weight", "2.weight"]),
        ({"step": False}, ["0.weight", "2.weight", "4.weight"]),
    ):
        case = iris(model=model, train=setting, steps=3)
        trained = train(case, tmp_path / str(setting), CaptureConfig())
        now = trained.model.state_dict()
        weights = [name for name in now if name.endswith("weight")]
        assert [name for name in weights if torch.equal(now[name], trained.first[name])] == still


@pytest.mark.thorough
def test_a_healthy_case_learns_and_is_left_alone() -> None:
    verdict = judge_case(Job(iris(), 0, rules=("nonfinite", "vanishing_gradient")))
    assert verdict.outcome.as_expected
    assert verdict.outcome.measured["acc"] >= 0.9
    assert verdict.findings == ()
    assert (verdict.detected_at, verdict.saved, verdict.named) == (None, 0.0, False)


def test_a_faulty_case_is_found_with_its_step_and_class() -> None:
    case = iris(
        id="explodes",
        kind="faulty",
        fault_class="exploding",
        model=[{"dense": 8, "act": "exponential", "repeat": 4}, {"dense": 3}],
        init="normal:2.0",
        expect={"any": [["nan", "==", True]]},
    )
    verdict = judge_case(Job(case, 0, rules=("nonfinite",)))
    assert verdict.outcome.as_expected
    assert verdict.stop is not None
    assert verdict.detected_at is not None
    assert verdict.detected_at <= 2
    assert verdict.saved > 0.9
    assert verdict.peers["AUTOTRAINER"][0].symptom == "exploding gradient"
    assert "ExplodingTensor" in [one.symptom for one in verdict.peers["Debugger, every 20 steps"]]


def test_metrics_may_be_left_out(tmp_path: Path) -> None:
    for metrics, names in ((True, ["metrics/accuracy"]), (False, [])):
        folder = tmp_path / str(metrics)
        train(iris(steps=20), folder, CaptureConfig().with_defaults(), metrics=metrics)
        run = open_run(folder)
        assert run.scalar_names(collection="metrics") == names
        assert len(run.scalars("losses", mode="eval")["losses/CrossEntropyLoss"]) > 4


@pytest.mark.thorough
def test_a_second_hook_changes_neither_the_training_nor_the_first_run(
    tmp_path: Path,
) -> None:
    from benchmarks.faults.peers import PEER_CAPTURE

    capture = CaptureConfig.from_json({"weights": {"every": 10}}).with_defaults()
    alone = train(iris(), tmp_path / "alone", capture)
    beside = train(iris(), tmp_path / "first", capture, further=(tmp_path / "second", PEER_CAPTURE))
    for name, value in alone.model.state_dict().items():
        assert torch.equal(value, beside.model.state_dict()[name])
    runs = [open_run(tmp_path / name) for name in ("alone", "first")]
    assert runs[0].tensor_names() == runs[1].tensor_names()
    seen = [run.to_pandas().drop(columns="time") for run in runs]
    assert seen[0].equals(seen[1])


@pytest.mark.slow
def test_the_command_judges_each_case_in_its_own_process(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    sick = {**IRIS, "id": "sick", "kind": "faulty", "fault_class": "exploding", "steps": 5}
    sick |= {"optimizer": {"name": "sgd", "lr": 1e30}, "expect": {"any": [["nan", "==", True]]}}
    file.write_text(yaml.safe_dump({"version": 1, "cases": [IRIS, sick]}))
    command = [sys.executable, "-m", "benchmarks.faults", "--cases", str(file), "--jobs", "1"]
    done = subprocess.run(
        [*command, "--rules", "nonfinite", "--seeds", "0,1"],
        cwd=FOLDER.parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    words = " ".join(done.stdout.split())
    assert "exploding 2 2 of 2, 100% 2 of 2, 100%" in words
    assert "healthy: false alarms 2 0 of 2, 0%" in words
    assert "UMLAUT 2 of 2, 100%" in words
    wrong = subprocess.run(
        [*command, "--only", "irsi"],
        cwd=FOLDER.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert wrong.returncode == 1
    assert wrong.stderr == "--only: unknown case 'irsi'; did you mean iris?\n"


@pytest.mark.thorough
def test_the_outcome_shows_dropout_and_running_statistics() -> None:
    model = [{"dense": 8}, {"bn": 0.1}, {"act": "relu"}, {"dropout": 0.5}, {"dense": 3}]
    for setting, measure in (
        ({"eval_in_train_mode": True}, "eval_nondet"),
        ({"mode": "eval"}, "bn_unchanged"),
    ):
        for train_as, met in ((setting, True), ({}, False)):
            case = iris(model=model, train=train_as, expect={"any": [[measure, ">", 0.001]]})
            found = judge_case(Job(case, 0, rules=("nonfinite",), peers=False))
            assert found.outcome.as_expected is met


def test_initial_weights_are_as_named(tmp_path: Path) -> None:
    model = [
        {"dense": 200, "init": "normal:0.3", "bias_init": "constant:-2"},
        {"dense": 200, "act": "relu", "init": "he_uniform"},
        {"dense": 3},
    ]
    trained = train(iris(model=model, init="uniform05", steps=1), tmp_path / "r", CaptureConfig())
    first = trained.first
    assert first["0.weight"].std() == pytest.approx(0.3, rel=0.1)
    assert (first["0.bias"] == -2).all()
    assert first["1.weight"].abs().max() == pytest.approx((6 / 200) ** 0.5, rel=0.01)
    assert first["3.weight"].abs().max() == pytest.approx(0.05, rel=0.05)
    assert (first["3.bias"] == 0).all()
