"""Diverging replicas are distinguished from healthy ones, in trainings of two gloo processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.torch_.parallel.ranks import run_ranks
from tests.capture.torch_.parallel.replica_training import ALTERED_AT, EVERY
from vinedresser.capture import open_run
from vinedresser.errors import ConfigError
from vinedresser.rules.judge import judge
from vinedresser.rules.ranks.replica_divergence import ReplicaDivergence
from vinedresser.store.finding import Finding
from vinedresser.testing.runs import make_run, step_record

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replicas")
    run_ranks("tests.capture.torch_.parallel.replica_training", folder)
    return folder


def judged(path: Path) -> list[Finding]:
    run = open_run(path)
    assert run.info.world_size == 2
    return judge(run, [ReplicaDivergence(every=EVERY)])


def test_a_single_bit_on_one_rank_is_found(trained: Path) -> None:
    (finding,) = judged(trained / "altered")
    assert (finding.tensor, finding.since, finding.step) == ("weights/3.weight", 15, 15)
    assert finding.since == ALTERED_AT + EVERY - ALTERED_AT % EVERY
    assert (finding.severity, finding.fault) == ("stop", "replica_divergence")
    assert "equal at step 10" in finding.seen
    assert "changed on one rank only" in finding.cause


def test_unreduced_gradients_are_distinguished(trained: Path) -> None:
    (finding,) = judged(trained / "unwrapped")
    # Weights may be averaged later.
    assert (finding.since, finding.severity) == (EVERY, "warning")
    assert "gradients are not reduced" in finding.cause


@pytest.mark.parametrize(
    ("name", "since", "cause"),
    [("lost_hooks", EVERY, "hooks were lost"), ("set_apart", 0, "start with different weights")],
)
def test_replicas_that_the_wrapper_should_keep_equal(
    name: str, since: int, cause: str, trained: Path
) -> None:
    (finding,) = judged(trained / name)
    assert (finding.since, finding.step) == (since, since)
    assert cause in finding.cause


@pytest.mark.parametrize(
    "name", ["healthy", "averaged", "sharded", "not_synchronised", "own_reduction"]
)
def test_correct_replicas_are_ignored(trained: Path, name: str) -> None:
    path = trained / name
    if name == "healthy":
        # Fingerprints were compared.
        prints = [
            open_run(path).reductions("fingerprint", rank=rank)["weights/0.weight"].values
            for rank in (0, 1)
        ]
        assert len(set(prints[0])) == 7
        assert list(prints[0]) == list(prints[1])
    assert judged(path) == []


def test_the_odd_rank_of_three_is_reported(tmp_path: Path) -> None:
    def rank(odd: bool) -> list:  # type: ignore[type-arg]
        return [
            step_record(
                step,
                reductions={
                    "weights/a": {"fingerprint": 7.0},
                    "weights/b": {"fingerprint": float(step + (odd and step >= 200))},
                },
            )
            for step in range(0, 500, 100)
        ]

    run = make_run(tmp_path / "run", rank(False), rank(True), rank(False))
    (finding,) = judge(run, [ReplicaDivergence()])
    assert "b: rank 1 differs since step 200" in finding.seen
    assert finding.step == 300


@pytest.mark.parametrize("communicate", [False, True])
def test_replicas_that_may_be_averaged_later_are_not_stopped(
    communicate: bool, tmp_path: Path
) -> None:
    def rank(number: int) -> list:  # type: ignore[type-arg]
        names = ("weights/a", "biases/b", "gradients/a", "gradients/b")
        return [
            step_record(
                step,
                scalars={"ranks/collectives": float(step * communicate), "ranks/reduced": 0.0},
                reductions={
                    name: {"fingerprint": float(step + number * bool(step))} for name in names
                },
            )
            for step in range(0, 1000, 50)
        ]

    found = judge(make_run(tmp_path / "run", rank(0), rank(1)), [ReplicaDivergence()])
    steps = [(one.severity, one.step, one.since) for one in found]
    warned = ("warning", 300 if communicate else 50, 50)
    assert steps == ([warned] if communicate else [warned, ("stop", 650, 50)])


def test_a_single_process_is_ignored(tmp_path: Path) -> None:
    records = [
        step_record(step, reductions={"weights/a": {"fingerprint": float(step)}})
        for step in range(0, 500, 100)
    ]
    assert judge(make_run(tmp_path / "run", records), [ReplicaDivergence()]) == []


def test_invalid_parameters_raise() -> None:
    with pytest.raises(ConfigError, match="every = 0: must be at least 1 step"):
        ReplicaDivergence(every=0)
