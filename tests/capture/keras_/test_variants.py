"""Number of functions that are traced of a Keras step, by what is due in its steps."""

from __future__ import annotations

import pytest

from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.keras_.graphs.traced import Traced
from vinedresser.capture.keras_.graphs.variants import Variants
from vinedresser.capture.keras_.observation.due_filter import DueFilter
from vinedresser.store.collections.schedule import SaveConfig

EVERY = {"losses": 1, "gradients": 2, "weights": 3, "outputs": 5}
NAMES = {"losses/loss", "gradients/dense", "weights/dense", "outputs/dense"}
CONFIG = CaptureConfig.of({name: SaveConfig(every=every) for name, every in EVERY.items()})


@pytest.mark.parametrize(("seconds", "number"), [(0.1, 4), (20.0, 2)])
def test_a_graph_that_takes_long_to_trace_has_two_functions(seconds: float, number: int) -> None:
    made: list[Traced] = []

    def make(is_due: DueFilter) -> Traced:
        one = Traced(is_due)
        # As tracing does.
        one.returned = {name for name in sorted(NAMES) if one.request(name)}
        one.seconds = seconds
        made.append(one)
        return one

    variants = Variants("train_step", make)
    for step in range(30):
        wanted = {one for one in NAMES if step % EVERY[one.partition("/")[0]] == 0}
        assert variants.choose(CONFIG.due(step, "train")).returned >= wanted
    assert len(made) == number
    # What the first steps need, in which everything is due, and what most need.
    assert made[0].returned == NAMES
    assert made[1].returned == {"losses/loss"}
