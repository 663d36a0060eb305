"""What a sweep proposes for a broken trial does not contradict its best one."""

from __future__ import annotations

import pytest

from vinedresser.sweeps.trial import Trial, TrialEnd
from vinedresser.sweeps.trial_advice import trial_advice

REMEDY = "lr 3.5e-05 instead of 0.035; clip the gradient norm"
BROKEN = Trial(
    3,
    {"lr": 0.035, "width": 8},
    ending=TrialEnd("stopped", "", "learning_rate_too_high", "learning_rate_too_high", REMEDY),
)


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        (0.0015, "lr 0.0015 instead of 0.035, as trial-0007 has, the best trial"),
        (
            0.08,
            "trial-0007, the best trial, has lr 0.08: compare the other hyperparameters with it",
        ),
        (0.035, "trial-0007, the best trial, has lr 0.035: compare the other hyperparameters"),
    ],
)
def test_the_best_trial_tells_the_value(rate: float, told: str) -> None:
    best = Trial(7, {"lr": rate, "width": 64}, result=(0.9,), ending=TrialEnd("finished"))
    clauses = trial_advice(BROKEN, [best]).split("; ")
    assert clauses[0].startswith(told)
    assert clauses[1] == "clip the gradient norm"


def test_the_rule_tells_it_of_what_the_sweep_does_not_know() -> None:
    best = Trial(7, {"width": 64}, result=(0.9,), ending=TrialEnd("finished"))
    assert trial_advice(BROKEN, []) == trial_advice(BROKEN, [best]) == REMEDY
    assert trial_advice(Trial(1, {"lr": 0.1}), [best]) == ""
