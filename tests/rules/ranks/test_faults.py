"""Faults of distributed trainings are found and named, in trainings of two gloo processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.torch_.parallel.rank_faults import (
    ALTERED_AT,
    CLEAN,
    EVERY,
    LAST,
    TRAININGS,
    rules,
)
from tests.capture.torch_.parallel.rank_variants import VARIANTS
from tests.capture.torch_.parallel.ranks import run_ranks
from vinedresser.capture import open_run
from vinedresser.rules.judge import judge
from vinedresser.store.finding import Finding

pytestmark = pytest.mark.thorough

_LONG = ("healthy_clean", "healthy_clean_sharded")
_SHORT = [name for name in TRAININGS if name not in _LONG]
_STOP = "replica_divergence", "stop"
# By fault: rule, severity, kind or section, first step, and the rank that is named.
_FOUND: dict[str, tuple[str, str, str, int, int]] = {
    "shared_seed": ("rank_data", "warning", "same_inputs_and_random_state", 0, 0),
    "no_sampler": ("rank_data", "warning", "same_inputs", 0, 0),
    "inner_model": ("rank_data", "warning", "same_inputs", 0, 0),
    "sharded_no_sampler": ("rank_data", "warning", "same_inputs", EVERY, 0),
    "missing_reduction": (*_STOP, "gradient_not_reduced", EVERY, 0),
    # Weights might be averaged, so only at the end.
    "gathered_evaluation": ("replica_divergence", "warning", "gradients_not_reduced", EVERY, 0),
    "summed": ("gradient_reduction", "warning", "summed", 0, 0),
    "clipped_first": ("gradient_reduction", "warning", "scaled_before_reduction", 0, 1),
    "accumulated": ("gradient_reduction", "info", "reduced_too_often", 0, 0),
    "divided": ("gradient_reduction", "info", "divided_by_ranks", 0, 0),
    "divided_function": ("gradient_reduction", "info", "divided_by_ranks", 0, 0),
    "frozen_on_one": (*_STOP, "not_updated", EVERY, 1),
    "stale_masters": (*_STOP, "not_updated", EVERY, 1),
    "other_rate": (*_STOP, "optimizer", EVERY, 0),
    "starts_apart": (*_STOP, "start_apart", 0, 0),
    "flipped": (*_STOP, "changed_on_one_rank", 15, 0),
    "uneven": ("rank_data", "info", "unequal_rows", 16, 1),
    "one_checkpoint": ("rank_data", "warning", "same_inputs_and_random_state", 15, 0),
    "tensor_parallel": (*_STOP, "gradient_not_reduced", EVERY, 0),
    "unsynchronised": (
        *("unsynchronised_statistics", "warning", "unsynchronised_statistics"),
        *(EVERY, 0),
    ),
    "corrupt": ("rank_outlier", "warning", "loss", 100, 1),
    "scaled": ("rank_outlier", "warning", "norm", 250, 1),
    "slow": ("slow_rank", "warning", "wait", 20, 1),
}
_TENSORS = {
    "missing_reduction": "biases/3.bias",
    "flipped": "weights/3.weight",
    "frozen_on_one": "weights/3.weight",
    "tensor_parallel": "weights/norm.weight",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    run_ranks("tests.capture.torch_.parallel.rank_faults", folder, *_SHORT)
    return folder


def judged(path: Path) -> list[Finding]:
    run = open_run(path)
    assert run.info.world_size == 2
    return judge(run, rules(path.name))


@pytest.mark.parametrize("name", _FOUND)
def test_a_fault_is_found_and_named(name: str, trained: Path) -> None:
    (finding,) = judged(trained / name)
    kind = finding.evidence.get("kind", finding.evidence.get("section", ""))
    found = finding.rule, finding.severity, kind, finding.since, finding.rank
    if name == "clipped_first":
        # Which rank has the larger gradient depends on its rows.
        found = (*found[:4], 1)
    assert found == _FOUND[name]
    assert name not in _TENSORS or finding.tensor == _TENSORS[name]
    if finding.rule in ("replica_divergence", "rank_data", "gradient_reduction") and (
        name != "gathered_evaluation"
    ):
        assert finding.step <= finding.since + EVERY


def test_a_flipped_bit_is_found_at_the_next_check(trained: Path) -> None:
    (finding,) = judged(trained / "flipped")
    assert ALTERED_AT < finding.step <= ALTERED_AT + EVERY


def test_an_optimizer_made_before_the_model_is_sharded_trains_nothing(trained: Path) -> None:
    (finding,) = judged(trained / "early_optimizer")
    assert finding.rule == "untrained_parameters"


def test_an_optimizer_made_before_the_wrapper_trains_the_same(trained: Path) -> None:
    assert judged(trained / "first_optimizer") == []
    weights: list[dict[str, list[float]]] = []
    for name in ("first_optimizer", "healthy_first_optimizer"):
        prints = open_run(trained / name).reductions("fingerprint", rank=0)
        weights.append({one: list(prints[one].values) for one in prints})
    # Bit for bit, at each check.
    assert weights[0] == weights[1]
    assert len(set(weights[0]["weights/3.weight"])) == LAST // EVERY + 1


@pytest.mark.parametrize("name", [name for name in _SHORT if name.startswith("healthy_")])
def test_a_healthy_twin_is_silent(name: str, trained: Path) -> None:
    assert judged(trained / name) == []


@pytest.mark.slow
def test_a_thousand_clean_steps_are_silent(tmp_path: Path) -> None:
    run_ranks("tests.capture.torch_.parallel.rank_faults", tmp_path, *_LONG)
    for name in _LONG:
        assert judged(tmp_path / name) == []
        run = open_run(tmp_path / name)
        assert [len(run.steps("train", rank)) for rank in (0, 1)] == [CLEAN, CLEAN]
    prints = run.reductions("fingerprint", rank=0)
    # Shards are not compared.
    assert list(prints) == []
    prints = open_run(tmp_path / _LONG[0]).reductions("fingerprint", rank=1)
    assert len(set(prints["weights/0.weight"].values)) == CLEAN // 50


def test_unusual_healthy_trainings_are_silent(tmp_path: Path) -> None:
    run_ranks("tests.capture.torch_.parallel.rank_variants", tmp_path)
    assert {name: judged(tmp_path / name) for name in VARIANTS} == {name: [] for name in VARIANTS}
