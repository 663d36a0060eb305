"""The default rules stop none of many different trainings that learn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rules.healthy_zoo.registry import LACKS, ZOO
from tests.rules.healthy_zoo.with_keras import KERAS
from vinedresser.capture import open_run
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES
from vinedresser.store.finding import Finding
from vinedresser.store.reading.findings import Findings

_SEEDS = (0, 1)
# These with the first seed; the rest by `make test-slow`.
_QUICK = ("mlp", "frozen", "xgboost_classes")
_THOROUGH = (
    *("cyclic", "embedding_bag", "gan", "keras_cnn", "lstm", "policy_gradient", "rare_class"),
    "transformer",
)
# Of these, seeds were found that used to raise a false alarm.
_REPAIRED = (("curriculum", 4), ("parity", 1), ("parity", 3), ("gan", 2), ("gan", 3))


def _trainings() -> Iterator[object]:
    both = [(name, seed) for name in ZOO for seed in _SEEDS]
    for name, seed in dict.fromkeys((*both, *_REPAIRED)):
        marks: list[pytest.MarkDecorator] = []
        if seed or name not in (*_QUICK, *_THOROUGH):
            marks.append(pytest.mark.slow)
        elif name in _THOROUGH:
            marks.append(pytest.mark.thorough)
        if name in KERAS:
            # Of Keras itself, whenever it makes an array of a variable.
            marks.append(
                pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
            )
        yield pytest.param(name, seed, marks=marks)


def _in_words(findings: list[Finding]) -> str:
    """Return one line per finding."""
    return "\n".join(
        f"{finding.severity} {finding.rule} at {finding.step}: {finding.seen}"
        for finding in findings
    )


def _missed(findings: Findings, lacks: frozenset[str]) -> dict[str, list[str]]:
    """Return the rules that missed data that exist, with these data."""
    assert findings.checks is not None
    expected = lacks | {"evaluations"}
    return {
        rule: wrong
        for rule, lacking in findings.checks.lacking.items()
        if (wrong := [one for one in lacking if expected.isdisjoint(one.split())])
    }


def _failed(finding: Finding) -> bool:
    return "the rule itself failed" in finding.seen or "could not be read" in finding.seen


@pytest.mark.parametrize(("name", "seed"), list(_trainings()))
def test_a_healthy_training_is_not_stopped(name: str, seed: int, tmp_path: Path) -> None:
    ZOO[name](tmp_path / "run", seed)
    run = open_run(tmp_path / "run")
    assert run.status.state == "finished"
    # There are data to judge.
    losses = run.scalars("losses", mode="train")
    assert max(len(loss.steps) for loss in losses.values()) >= 30
    findings = judge(run, [kind() for kind in RULES.values()])
    faulty = [finding for finding in findings if _failed(finding)]
    assert not faulty, _in_words(faulty)
    assert _missed(findings, LACKS[name]) == {}
    if any(finding.severity == "stop" for finding in findings):
        pytest.fail(_in_words(findings))
