"""Labels that are not those of the captured inputs are not related to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vinedresser.explain.reports.last_batches import last_batches
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.testing.runs import make_run, step_record

LOSS = "CrossEntropyLoss"


@pytest.mark.parametrize("unpaired", [[], [LOSS]])
def test_rows_of_inputs_and_labels(unpaired: list[str], tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    records = [
        step_record(
            step,
            tensors={
                "model_inputs/x": generator.normal(size=(4, 2)),
                f"labels/{LOSS}": np.array([0, 1, 2, 1]),
                f"predictions/{LOSS}": generator.normal(size=(4, 3)),
            },
            scalars={f"losses/{LOSS}": 1.1},
        )
        for step in range(3)
    ]
    losses = {LOSS: {"type": LOSS, "settings": {}}}
    run = make_run(tmp_path / "run", records, losses=losses, unpaired=unpaired)
    batches = Batches(every=1)
    batches.on_record(run.info)
    for step in run.follow():
        batches.update(step)
        assert [one.loss for one in batches.compared] == [LOSS]
        assert [one.loss for one in batches.paired] == ([] if unpaired else [LOSS])
    seen = last_batches(run)
    assert seen is not None
    assert {bool(batch.inputs) for batch in seen.batches} == {not unpaired}
