"""Reading is measured by ways and settings."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from vinedresser.cli import main
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
    assert all(one.choppiness >= 1 for one in found.measured)
    document = json.loads(json.dumps(found.to_json()))
    assert document["proposed"].keys() == {"connections", "chunk_bytes"}


def slow(value: bytes) -> bytes:
    """Decode, with much more work than reading."""
    for _ in range(20):
        hashlib.sha256(value * 50).digest()
    return value


def test_a_slow_decoder_is_the_slowest_stage(tmp_path: Path) -> None:
    write([bytes(984)] * 100, str(tmp_path / "data"))
    found = measure_reading(tmp_path / "data", batch_size=10, decode=slow, seconds=0.2, rounds=1)
    assert found.slowest_stage == "decoding"
    for one in found.measured:
        if one.settings is not None:
            assert one.stages["decoding"] > 0.5


def test_the_command_draws_and_refuses_what_is_no_decoder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write([bytes(984)] * 20, str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text("def decode(value):\n    return value[:1]\n")

    def bench(*options: str) -> str:
        """Return standard error; raise SystemExit if the command fails."""
        short = ("--seconds", "0.01", "--rounds", "1")
        monkeypatch.setattr("sys.argv", ["vinedresser", "data", "bench", "data", *short, *options])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == (0 if "a.svg" in options else 2)
        return capsys.readouterr().err

    bench("--decode", "own:decode", "--draw", "a.svg")
    assert "decoding" in Path("a.svg").read_text()
    for wrong, named in (("own", "MODULE:FUNCTION"), ("own:decod", "decode"), ("owm:a", "owm")):
        assert named in bench("--decode", wrong)
    assert "a.png" in bench("--draw", "a.png")
