"""Population-based training on the toy problem of its paper (arXiv 1711.09846, section 4.1).

The true objective is 1.2 - (a^2 + b^2); a training sees the surrogate 1.2 - (h0 a^2 + h1 b^2) only,
whose gradient it follows. With a fixed configuration such as h = (1, 0) one of the two coordinates
stays where it began, so no search over fixed configurations of this kind gets beyond 0.39; a
schedule does.
"""

from __future__ import annotations

import pytest

from tests.sweeps.studies import FINISHED, begin
from vinedresser.infra.configuration import build
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.study import Study

SPACE = Space.parse({"h0": {"float": [0.0, 1.0]}, "h1": {"float": [0.0, 1.0]}}, "space")
# As in the paper: two members, theta from (0.9, 0.9), h of (1, 0) and (0, 1), four steps of SGD
# between decisions.
POINTS = [{"h0": 1.0, "h1": 0.0}, {"h0": 0.0, "h1": 1.0}]
BEGIN, STEPS, RATE, GENERATIONS = (0.9, 0.9), 4, 0.02, 60


def trained(theta: tuple[float, float], h0: float, h1: float) -> tuple[float, float]:
    """Return the weights after some steps of gradient ascent on the surrogate."""
    a, b = theta
    for _ in range(STEPS):
        a, b = a - RATE * 2 * h0 * a, b - RATE * 2 * h1 * b
    return a, b


def worth(theta: tuple[float, float]) -> float:
    return 1.2 - theta[0] ** 2 - theta[1] ** 2


def search(seed: int) -> float:
    """Return the best result of a population."""
    table = {
        "metric": "q",
        "direction": "maximize",
        "trials": 2 * GENERATIONS,
        "pruner": "none",
        "resume": "from",
        "seed": seed,
        "points": POINTS,
        "sampler": {"name": "pbt", "population": 2, "quantile": 0.5},
    }
    study = Study(build(SweepTable, table, "sweep.toml: sweep"), SPACE)
    weights: dict[int | None, tuple[float, float]] = {None: BEGIN}
    for _ in range(2 * GENERATIONS):
        one = begin(study)
        assert one.line is not None
        h0, h1 = (float(one.parameters[name]) for name in ("h0", "h1"))
        weights[one.number] = trained(weights[one.line.parent], h0, h1)
        study.tell(one.number, FINISHED, [worth(weights[one.number])])
    (best,) = study.best()
    return best.result[0]


@pytest.mark.thorough
def test_a_schedule_goes_beyond_every_fixed_configuration_of_the_members() -> None:
    fixed = []
    for point in POINTS:
        theta = BEGIN
        for _ in range(GENERATIONS):
            theta = trained(theta, point["h0"], point["h1"])
        fixed.append(worth(theta))
    assert max(fixed) == pytest.approx(1.2 - 0.81, abs=1e-3)
    results = [search(seed) for seed in range(20)]
    # The paper reaches 1.2, the maximum, up to what chance leaves.
    assert min(results) > 1.1
    assert sum(result > 1.19 for result in results) >= 15
