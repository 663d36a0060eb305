"""Rules of ranks on numbers of any size, and on runs of one process."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property_tests import examples
from vinedresser.errors import ConfigError
from vinedresser.rules.judge import judge
from vinedresser.rules.ranks.gradient_reduction import GradientReduction
from vinedresser.rules.ranks.rank_data import RankData
from vinedresser.rules.ranks.rank_outlier import RankOutlier
from vinedresser.rules.ranks.replica_divergence import ReplicaDivergence
from vinedresser.rules.ranks.slow_rank import SlowRank
from vinedresser.rules.ranks.unsynchronised_statistics import UnsynchronisedStatistics
from vinedresser.store.finding import Finding
from vinedresser.store.step_record import StepRecord
from vinedresser.testing.runs import make_run, step_record

CHECKS = (ReplicaDivergence, GradientReduction, RankData, UnsynchronisedStatistics)
NUMBERS = st.floats(width=64) | st.sampled_from([0.0, 1.0, -1.0, 1e308, -1e308, 5e-324])
STEPS = 101


def records(values: list[float], rank: int) -> list[StepRecord]:
    """Return the records of a rank whose numbers are these values, by turns."""
    made = []
    for step in range(STEPS):
        at = [values[(step * k + rank) % len(values)] for k in range(1, 6)]
        scalars = {"losses/a": at[0], "ranks/reduced": at[1], "optimizer_state/lr": at[2]}
        times = ("timing/step", "timing/wait", "timing/forward")
        scalars |= dict(zip(times, map(abs, at[1:]), strict=False))
        words = (
            *("collectives", "data_parallel", "divisor", "inputs", "objective", "passes"),
            *("random", "reducing_passes", "rows"),
        )
        scalars |= {f"ranks/{word}": at[k % 5] for k, word in enumerate(words)}
        names = ("weights/a", "biases/a", "gradients/a", "buffers/n.running_mean")
        tensors = {
            f"ranks/{word}": np.array(values * 16) * (1.0 + rank)
            for word in ("local_gradients", "gradients")
        }
        reductions = {name: {"fingerprint": at[k]} for k, name in enumerate(names)}
        made.append(step_record(step, scalars=scalars, tensors=tensors, reductions=reductions))
    return made


def judged(*ranks: list[StepRecord]) -> list[Finding]:
    rules = [*(kind(every=5, patience=1) for kind in (*CHECKS, RankOutlier)), SlowRank()]
    with tempfile.TemporaryDirectory() as folder:
        return judge(make_run(Path(folder) / "run", *ranks), rules)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:overflow")
@given(st.lists(NUMBERS, min_size=1, max_size=8))
@examples(10)
def test_no_rule_fails_whatever_the_numbers(values: list[float]) -> None:
    found = judged(records(values, 0), records(values, 1))
    assert [one.rule for one in found if "the rule itself failed" in one.seen] == []
    for one in found:
        json.dumps(one.to_json(), allow_nan=False)


def test_a_single_process_is_ignored() -> None:
    assert judged(records([1.0, 2.0, 4.0], 0)) == []


@pytest.mark.parametrize("kind", CHECKS)
def test_invalid_parameters_raise(kind: type[RankData]) -> None:
    with pytest.raises(ConfigError, match="patience = 0: must be at least 1"):
        kind(patience=0)
    with pytest.raises(ConfigError, match="every = 0: must be at least 1 step"):
        kind(every=0)
