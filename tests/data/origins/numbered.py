"""Files of records that tell which ones they are, and what is known of a captured batch of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from vinedresser.capture import SaveConfig
from vinedresser.rules.signals.origins import batch_origins
from vinedresser.store.reading.step import Step

CAPTURED = {name: SaveConfig(every=1) for name in ("labels", "predictions", "model_inputs")}
FILES, RECORDS, SIZE = 3, 40, 16
# File and number of the record that spoils a step.
BAD = (1, 17)


def write(folder: Path, *, files: int = FILES, bad: bool = False) -> Path:
    """Write records whose first value tells which one it is."""
    folder.mkdir()
    for file in range(files):
        with (folder / f"{file}.jsonl").open("w") as lines:
            for number in range(RECORDS):
                place = file * RECORDS + number
                value = None if bad and (file, number) == BAD else place / 128
                lines.write(json.dumps({"x": [value, place % 7], "y": place % 2}) + "\n")
    return folder


def certain(step: Step, model: str) -> bool | None:
    """Return whether the origins of a step are known row by row; None if they are not known.

    They must be right: compared with what the captured inputs themselves tell.
    """
    found = batch_origins(step)
    if found is None:
        return None
    places = np.rint(step.tensor(f"inputs/{model}")[:, 0] * 128).astype(int).tolist()
    wanted = [(f"{place // RECORDS}.jsonl", place % RECORDS) for place in places]
    if not found.in_order:
        known = {(Path(origin.uri).name, origin.record) for origin in found.origins}
        assert set(wanted) <= known
        assert found.of_row(0, len(wanted)) is None
        return False
    named = [found.of_row(row, len(wanted)) for row in range(len(wanted))]
    assert [one and (Path(one.uri).name, one.record) for one in named] == wanted
    for one in filter(None, named):
        line = Path(one.uri).read_bytes()[one.offset :].splitlines()[0]
        assert json.loads(line)["y"] == (int(Path(one.uri).stem) * RECORDS + one.record) % 2
    return True
