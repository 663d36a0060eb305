"""Streams are appended to a run, and read as they were written, whatever happened meanwhile."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vinedresser.errors import ConfigError, UnknownStream
from vinedresser.objects import open_storage
from vinedresser.queries.answer import Answer
from vinedresser.queries.asking import ask
from vinedresser.queries.stored.saving import StreamWriter, saved
from vinedresser.queries.stored.streams import streams
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.testing.runs import make_run, step_record


def answers(run: Run, query: str = "norm(gradients) by layer") -> list[Answer]:
    return list(ask(run, query, "3 steps"))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    random = np.random.default_rng(0)
    layers = ("conv1.weight", "fc.weight")
    return make_run(
        tmp_path / "run",
        [
            step_record(
                step,
                tensors={f"gradients/{layer}": random.normal(size=(4, 4)) for layer in layers},
                scalars={"losses/train": float(step)},
                at=1e9 + step,
            )
            for step in range(30)
        ],
    )


def store(run: Run, name: str, found: list[Answer], **settings: Any) -> StreamWriter:
    writer = StreamWriter(open_storage(run.path), name, **settings)
    for answer in found:
        writer.add(answer)
        writer.flush()
    return writer


def test_a_stored_stream_has_the_answers_of_the_query(run: Run) -> None:
    found = answers(run)
    store(run, "norms", found)
    assert [*streams(run)] == ["norms"]
    stream = streams(run.path)["norms"]
    assert list(stream) == found
    assert stream[-1].step == 29
    assert stream.summary == ("norms", "norm(gradients) by layer", "3 steps", 10, "0 to 29")
    assert run.damage(run.status) == []


def test_a_stream_is_continued_after_what_it_has(run: Run) -> None:
    found = answers(run)
    store(run, "norms", found[:4])
    store(run, "norms", found[4:])
    assert list(streams(run)["norms"]) == found
    assert len(list(Path(run.path, "streams", "norms", "0").iterdir())) == 2


def test_each_rank_has_its_own_files(run: Run) -> None:
    found = answers(run)
    others = [replace(one, rank=1, time=one.time + 0.5) for one in found]
    store(run, "norms", found)
    store(run, "norms", others, rank=1)
    pairs = [(one.since, one.rank) for one in streams(run)["norms"]]
    assert pairs == [(first, rank) for first in range(0, 30, 3) for rank in (0, 1)]


def test_parts_are_small_and_the_whole_is_bounded(run: Run) -> None:
    [answer, *_] = answers(run)
    long = [
        replace(answer, window=number, value={f"layer{i}": 0.1 for i in range(999)})
        for number in range(200)
    ]
    writer = store(run, "long", long, most=1 << 20)
    parts = sorted(Path(run.path, "streams", "long", "0").iterdir())
    sizes = [part.stat().st_size for part in parts]
    assert max(sizes) < (256 << 10) + len(long[0].to_json()) + 1
    assert sum(sizes) <= (1 << 20) + 1_000
    assert writer.full
    stream = streams(run)["long"]
    assert list(stream[:-1]) == long[: len(stream) - 1]
    assert stream[-1].ended
    assert "the stream is full: it has 1 MiB" in str(stream[-1].error)


def test_numbers_that_json_lacks_are_kept(run: Run) -> None:
    [answer, *_] = answers(run)
    store(run, "odd", [replace(answer, value={"a": float("inf"), "b": float("nan")})])
    [found] = streams(run)["odd"]
    assert found.value["a"] == float("inf")
    assert np.isnan(found.value["b"])


def test_a_torn_end_is_no_damage_and_other_damage_is_reported_once(run: Run) -> None:
    found = answers(run)
    store(run, "norms", found)
    [part] = Path(run.path, "streams", "norms", "0").iterdir()
    whole = part.read_bytes()
    part.write_bytes(whole[:-9])
    opened = open_run(run.path)
    assert list(streams(opened)["norms"]) == found[:-1]
    assert opened.problems == []
    lines = whole.splitlines(keepends=True)
    lines[3:5] = [b'{"kind": "scalar"}\n', b"\xff\xfe\n"]
    part.write_bytes(b"".join(lines))
    for _ in range(2):
        assert list(streams(opened)["norms"]) == found[:3] + found[5:]
    [problem] = opened.problems
    assert "streams/norms/0/000000.jsonl: line 4 is not an answer" in problem
    assert "1 more" in problem


def test_a_part_that_no_writer_makes_is_not_read(run: Run) -> None:
    store(run, "norms", answers(run))
    [part] = Path(run.path, "streams", "norms", "0").iterdir()
    part.with_name("000001.jsonl").write_bytes(b" " * (1 << 21))
    opened = open_run(run.path)
    assert len(streams(opened)["norms"]) == 10
    [problem] = opened.problems
    assert "000001.jsonl: larger than a part of a stream; ignored" in problem


def test_links_and_strays_are_not_followed(run: Run, tmp_path: Path) -> None:
    store(run, "norms", answers(run))
    folder = Path(run.path, "streams", "norms", "0")
    secret = tmp_path / "secret"
    secret.write_text("{}")
    os.symlink(secret, folder / "000001.jsonl")
    (folder / "notes.txt").write_text("mine")
    opened = open_run(run.path)
    assert len(streams(opened)["norms"]) == 10
    [problem] = opened.problems
    assert "000001.jsonl" in problem
    assert any("notes.txt: not the name of a part" in one for one in opened.damage(opened.status))


@pytest.mark.parametrize(
    "name", ["", "..", ".x", "a/b", "../../x", "a\nb", "\u00e9", "x" * 65, "a b", "-x", None]
)
def test_names_that_lead_elsewhere_are_refused(run: Run, name: Any) -> None:
    with pytest.raises(ConfigError, match="is not a name for a stream"):
        StreamWriter(open_storage(run.path), name)


def test_an_unknown_stream_names_similar_ones(run: Run) -> None:
    with pytest.raises(UnknownStream, match="it has none"):
        streams(run)["norms"]
    store(run, "norms", answers(run))
    with pytest.raises(UnknownStream, match="did you mean norms"):
        streams(run)["norm"]


def test_a_frame_has_a_row_per_number(run: Run) -> None:
    found = answers(run)
    store(run, "norms", found)
    frame = streams(run)["norms"].to_pandas()
    assert frame.groupby("label")["value"].mean().to_dict() == pytest.approx(
        {layer: np.mean([one.value[layer] for one in found]) for layer in ("conv1", "fc")}
    )
    assert len(frame) == 20
    store(run, "bins", answers(run, "histogram(gradients, 4, -9, 9)"))
    bins = streams(run)["bins"].to_pandas()
    assert set(bins["label"]) == {"-9", "-4.5", "0", "4.5"}
    assert (bins.groupby("step")["value"].sum() == 96).all()


def test_answers_are_saved_while_they_pass(run: Run) -> None:
    expected = answers(run)
    passing = saved(ask(run, "norm(gradients) by layer", "3 steps"), run, "passing")
    seen = [next(passing) for _ in range(4)]
    passing.close()  # type: ignore[attr-defined]
    assert seen == expected[:4]
    assert list(streams(run)["passing"]) == expected[:4]
    with pytest.raises(ConfigError, match="is not a name for a stream"):
        saved(iter(expected), run, "../x")


def test_a_reader_sees_what_a_writer_has_flushed(run: Run) -> None:
    found = answers(run)
    writer = StreamWriter(open_storage(run.path), "live")
    writer.add(found[0])
    assert "live" not in streams(run)
    writer.flush()
    assert list(streams(run)["live"]) == found[:1]
