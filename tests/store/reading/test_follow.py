"""Following a run: the same steps in the same order, live or afterwards, and always an end."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from vinedresser.errors import CorruptData
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import open_run
from vinedresser.store.reading.step import Step
from vinedresser.store.records import WaitingRecord, read_record
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, make_run, start_run, step_record
from vinedresser.testing.writing import known_records

Seen = list[tuple[int, int, str, int, dict[str, float]]]


def seen(steps: Iterator[Step]) -> Seen:
    return [(s.rank, s.ordinal, s.mode, s.step, dict(s.scalars)) for s in steps]


def write_in_a_process(
    folder: Path, *, rank: int = 0, steps: int, pause: float
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "vinedresser.testing.writing", str(folder)]
    arguments = [str(rank), str(steps), str(pause)]
    return subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)


@pytest.mark.thorough
def test_live_and_afterwards_are_the_same(tmp_path: Path) -> None:
    start_run(tmp_path)
    writer = write_in_a_process(tmp_path, steps=150, pause=0.002)

    def end() -> None:
        writer.communicate()
        end_run(tmp_path)

    ending = threading.Thread(target=end)
    ending.start()
    live = seen(open_run(tmp_path).follow(urgent=True))
    ending.join()
    expected = [
        (0, ordinal, record.mode, record.step, record.scalars)
        for ordinal, record in enumerate(islice(known_records(0), 165))
    ]
    assert live == expected
    assert seen(open_run(tmp_path).follow()) == expected


@pytest.mark.thorough
@pytest.mark.parametrize("polls", [(0.0, 0.03), (0.05, 0.0)])
def test_the_merged_order_does_not_depend_on_polling(
    tmp_path: Path, polls: tuple[float, float]
) -> None:
    start_run(tmp_path, world_size=3)
    # Different lengths and speeds; one rank evaluates, which shifts its records.
    writers = [
        write_in_a_process(tmp_path, rank=rank, steps=steps, pause=pause)
        for rank, (steps, pause) in enumerate([(60, 0.004), (40, 0.001), (60, 0.002)])
    ]

    def end() -> None:
        for writer in writers:
            writer.communicate()
        end_run(tmp_path)

    ending = threading.Thread(target=end)
    ending.start()
    found: list[Seen] = [[], []]

    def read(which: int) -> None:
        found[which] = seen(open_run(tmp_path).follow(polls[which], urgent=bool(which)))

    readers = [threading.Thread(target=read, args=(which,)) for which in range(2)]
    for reader in readers:
        reader.start()
    for thread in (*readers, ending):
        thread.join()
    afterwards = seen(open_run(tmp_path).follow())
    assert found == [afterwards, afterwards]
    assert len(afterwards) == 66 + 44 + 66
    for rank in range(3):
        assert [step[1] for step in afterwards if step[0] == rank] == list(
            range([66, 44, 66][rank])
        )


def test_ranks_come_in_the_order_of_steps(tmp_path: Path) -> None:
    first, second = ([step_record(step) for step in steps] for steps in ((0, 2, 3), (0, 2, 2)))
    run = make_run(tmp_path, first, second)
    order = [(step.step, step.rank) for step in run.follow()]
    assert order == [(0, 0), (0, 1), (2, 0), (2, 1), (2, 1), (3, 0)]


def test_records_of_one_step_are_in_capture_order(tmp_path: Path) -> None:
    first = [step_record(0, mode="eval"), step_record(0), step_record(1)]
    run = make_run(tmp_path, first, [step_record(0), step_record(1)])
    order = [(step.step, step.mode, step.rank) for step in run.follow()]
    assert order == [
        (0, "eval", 0),
        (0, "train", 1),
        (0, "train", 0),
        (1, "train", 1),
        (1, "train", 0),
    ]


def test_an_ended_rank_does_not_block_the_others(tmp_path: Path) -> None:
    start_run(tmp_path, world_size=2)
    first, second = (RunWriter(LocalStorage(tmp_path), rank) for rank in range(2))
    for writer in (first, second):
        writer.add(step_record(0))
    second.close()
    first.add(step_record(1))
    first.flush()
    following = open_run(tmp_path).follow()
    order = [(step.step, step.rank) for step in islice(following, 3)]
    assert order == [(0, 0), (0, 1), (1, 0)]
    first.close()
    end_run(tmp_path)
    assert list(following) == []


def test_it_waits_for_a_run_to_begin(tmp_path: Path) -> None:
    start_run(tmp_path)
    following = open_run(tmp_path).follow()
    found: list[Step] = []
    reader = threading.Thread(target=lambda: found.extend(following))
    reader.start()
    writer = RunWriter(LocalStorage(tmp_path))
    writer.add(step_record(0, scalars={"losses/loss": 2.0}))
    writer.close()
    end_run(tmp_path)
    reader.join(20)
    assert not reader.is_alive()
    assert [step.scalars["losses/loss"] for step in found] == [2.0]


def test_a_callback_runs_after_each_poll_without_a_step(tmp_path: Path) -> None:
    start_run(tmp_path)
    writer = RunWriter(LocalStorage(tmp_path))
    writer.add(step_record(0))
    writer.flush()
    polls: list[int] = []

    def wait() -> None:
        polls.append(len(polls))
        if len(polls) == 1:
            writer.add(step_record(1))
            writer.flush()
        elif len(polls) == 3:
            writer.close()
            end_run(tmp_path)

    found = [step.step for step in open_run(tmp_path).follow(0.0, on_idle=wait)]
    assert (found, polls) == ([0, 1], [0, 1, 2])


def test_it_ends_when_the_run_never_began(tmp_path: Path) -> None:
    start_run(tmp_path, created=time.time() - 3600)
    assert list(open_run(tmp_path).follow()) == []


@pytest.mark.thorough
def test_it_ends_when_the_writer_dies(tmp_path: Path) -> None:
    start_run(tmp_path)
    writer = write_in_a_process(tmp_path, steps=0, pause=0.001)
    following = open_run(tmp_path).follow(urgent=True)
    begun = list(islice(following, 20))
    writer.kill()
    writer.communicate()
    killed = time.monotonic()
    rest = list(following)
    assert time.monotonic() - killed < 5.0  # 0.3 s on an idle machine
    everything = [*begun, *rest]
    assert [step.ordinal for step in everything] == list(range(len(everything)))
    assert open_run(tmp_path).status.state == "dead"


def test_a_step_is_seen_soon_after_it_ended(tmp_path: Path) -> None:
    """The writer commits at once while an urgent reader is there, and soon no more when not."""
    start_run(tmp_path)
    writer = RunWriter(LocalStorage(tmp_path), cut_seconds=1000)
    following = open_run(tmp_path).follow(0.005, urgent=True)
    delays = []
    for number in range(5):
        begun = time.monotonic()
        writer.add(step_record(number))
        step = next(following)
        delays.append(time.monotonic() - begun)
        assert step.step == number
    assert min(delays) < 0.2
    assert max(delays) < 5.0
    waiting = read_record(LocalStorage(tmp_path), WaitingRecord)
    assert waiting is not None
    assert 0 < waiting.until - time.time() <= 2.0
    writer.close()


@pytest.mark.thorough
def test_the_request_for_urgency_is_renewed(tmp_path: Path) -> None:
    start_run(tmp_path)
    run = open_run(tmp_path)
    reader = threading.Thread(target=lambda: list(run.follow(urgent=True)))
    reader.start()
    untils: set[float] = set()
    deadline = time.monotonic() + 20
    while len(untils) < 3:
        assert time.monotonic() < deadline
        waiting = read_record(LocalStorage(tmp_path), WaitingRecord)
        if waiting is not None:
            untils.add(waiting.until)
        time.sleep(0.02)
    end_run(tmp_path)
    reader.join(20)
    ordered = sorted(untils)
    assert ordered[1] - ordered[0] == pytest.approx(1.0, abs=0.5)


def test_following_continues_if_urgency_cannot_be_requested(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_run(tmp_path, [step_record(0)])
    (tmp_path / "waiting.json").mkdir()
    assert len(list(open_run(tmp_path).follow(urgent=True))) == 1
    assert "waiting.json" in caplog.text


def test_several_readers_of_one_run_do_not_disturb_each_other(tmp_path: Path) -> None:
    run = make_run(tmp_path, [step_record(step) for step in range(4)])
    first, second = run.follow(), run.follow()
    assert next(first).step == 0
    assert [step.step for step in second] == [0, 1, 2, 3]
    assert run.refresh() == 4
    assert [step.step for step in first] == [1, 2, 3]


def test_a_step_returns_its_captured_data(tmp_path: Path) -> None:
    capture = {"first": {"regex": r"layer1\.", "save": [{"every": 1}]}}
    gradients = {f"gradients/layer{n}.weight": {"l2": float(n), "max": 2.0 * n} for n in range(3)}
    record = step_record(
        4,
        tensors={"weights/layer1.weight": np.ones(2, np.float32)},
        scalars={"losses/a": 1.5, "metrics/b": 2.5},
        reductions={**gradients, "outputs/layer1.relu": {"zero_share": 0.5}},
    )
    run = make_run(tmp_path, [step_record(3), record], capture=capture)
    empty, step = run.follow()
    assert empty.scalars == {}
    assert empty.reductions == {}
    assert empty.tensor_names == ()
    assert empty.reduction_of("gradients", "l2") == {}
    assert step.scalars_of("losses") == {"losses/a": 1.5}
    assert step.reduction_of("gradients", "l2") == {
        f"gradients/layer{n}.weight": float(n) for n in range(3)
    }
    assert step.reduction_of("first", "max") == {"gradients/layer1.weight": 2.0}
    assert step.reduction_of("first", "zero_share") == {"outputs/layer1.relu": 0.5}
    assert step.reduction_of("unheard of", "l2") == {}
    assert step.tensor("weights/layer1.weight").tolist() == [1, 1]
    with pytest.raises(LookupError, match=r"at train step 4; did you mean weights/layer1\.weight"):
        step.tensor("weights/layer1.weigth")


def test_a_step_with_corrupt_columns_is_still_yielded(tmp_path: Path) -> None:
    record = step_record(
        0, tensors={"x": np.ones(2)}, scalars={"losses/a": 1.5}, reductions={"x": {"l2": 1.0}}
    )
    run = make_run(tmp_path, [record])
    path = tmp_path / "segments" / "0" / "000000000000.safetensors"
    content = bytearray(path.read_bytes())
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    content[8 + length + header["columns#1"]["data_offsets"][0]] ^= 0x10
    path.write_bytes(content)
    (step,) = run.follow()
    message = r"000000000000\.safetensors: columns losses/a of steps 0"
    with pytest.raises(CorruptData, match=message):
        step.scalars["losses/a"]
    assert step.reduction_of("x", "l2") == {}
    assert step.reductions["x"]["l2"] == 1.0
    assert step.tensor("x").tolist() == [1, 1]
