"""Reading is measured by ways and settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vinedresser.data import write
from vinedresser.data.benchmark import Settings, measure_reading


def test_each_way_reads_all_of_the_data(tmp_path: Path) -> None:
    done = write([bytes(984)] * 300, str(tmp_path / "data"), part_bytes=100_000)
    counts = []
    found = measure_reading(
        tmp_path / "data",
        batch_size=50,
        seconds=0.02,
        rounds=2,
        progress=lambda *both: counts.append(both),
    )
    ways = len(found.measured)
    assert counts == [(number + 1, 3 * ways) for number in range(3 * ways)]
    assert (found.format, found.objects, found.records) == ("tfrecord", 3, 300)
    assert found.size == done.size == 300_000
    tried = {one.settings for one in found.measured} - {None}
    assert {Settings(), found.proposed} <= tried
    for one in found.measured:
        if one.way == "plain reading":
            assert one.records_per_second == 0
        elif one.settings is None and one.stages == {}:
            # Whole objects: a batch is an object, all of whose records count.
            assert one.bytes_per_second == pytest.approx(1000 * one.records_per_second)
        else:
            # At most two windows are read ahead of the records that are delivered.
            assert one.bytes_per_second >= 1000 * one.records_per_second * (1 - 1e-9)
            assert 0 < sum(one.stages.values()) <= 1
        assert 0 <= one.gaps[0] <= one.gaps[1] <= one.gaps[2]
    fastest = max(one.records_per_second for one in found.measured if one.settings)
    (chosen,) = (one for one in found.measured if one.settings == found.proposed)
    assert chosen.records_per_second >= 0.95 * fastest
    document = json.loads(json.dumps(found.to_json()))
    assert document["proposed"].keys() == {"connections", "chunk_bytes"}
