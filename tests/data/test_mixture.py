"""A mixture has of each class as its weights say, in the same order however it is divided."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import written
from tests.data.killing import kill
from tests.property_tests import examples
from vinedresser.data import Batch, Mixture, TorchLoader
from vinedresser.data.blend import Blend, History
from vinedresser.data.board import Board
from vinedresser.errors import ConfigError, DamagedData

SIZES = {"cat": 40, "dog": 25, "eel": 7}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two files for each class."""
    root = tmp_path_factory.mktemp("mixture")
    for number, (name, size) in enumerate(SIZES.items()):
        (root / name).mkdir()
        records = written.records(size, seed=number)
        for part, some in enumerate((records[: size // 3], records[size // 3 :])):
            (root / name / f"{part}.tfrecord").write_bytes(written.tfrecord(some))
    return root


def name_of(record: bytes) -> str:
    """Return the class of a record of `written.records`."""
    return list(SIZES)[int.from_bytes(record[:4], "little") // 1_000_000]


def mixture(folder: Path, **options: Any) -> Mixture:
    arguments: dict[str, Any] = {"batch_size": 6, "seed": 1, "chunk_bytes": 200}
    return Mixture({name: folder / name for name in SIZES}, **(arguments | options))


def seen(batches: list[Batch]) -> list[tuple[int, list[bytes]]]:
    return [(batch.number, batch.values) for batch in batches]


weights = st.lists(st.floats(0, 1) | st.floats(1, 1e6), min_size=1, max_size=12).filter(any)


def greedy(lacking: np.ndarray, size: int) -> np.ndarray:
    """Return how many of each class a batch gets, record by record."""
    lacking, counts = lacking.copy(), np.zeros(len(lacking), int)
    for _ in range(size):
        counts[lacking.argmax()] += 1
        lacking[lacking.argmax()] -= 1
    return counts


@given(first=weights, second=weights, size=st.integers(5, 300))
@examples(25)
def test_the_mix_is_that_of_the_weights(first: list[float], second: list[float], size: int) -> None:
    classes = min(len(first), len(second))
    vectors = [np.array(one[:classes]) for one in (first, second)]
    if not all(one.any() for one in vectors):
        return
    blend = Blend.begin(size, 1, classes)
    for vector in vectors:
        before = blend.counts[0].copy()
        batches = -(-10_000 // size)
        for number in range(batches):
            lacking = np.where(vector > 0, blend.lacking[0] + vector / vector.sum() * size, 0)
            drawn = blend.draw(vector)
            assert drawn.counts.sum() == size
            if number < 5:
                # Sums of different order differ in the last bits, and so do choices between equals.
                slow = greedy(np.where(vector > 0, lacking, -np.inf), size)
                assert np.abs(np.sort(lacking - slow) - np.sort(blend.lacking[0])).max() < 1e-6
        got = blend.counts[0] - before
        assert np.abs(got / (size * batches) - vector / vector.sum()).max() < 0.001
        assert not got[vector == 0].any()


@pytest.mark.parametrize("lanes", [1, 3])
def test_each_class_goes_through_its_records(folder: Path, lanes: int) -> None:
    data = mixture(folder, lanes=lanes, window_bytes=3000)
    assert data.records_by_class == SIZES
    epochs = [written.values(data) for _ in range(4)]
    assert data.epoch == 4
    assert [len(epoch) for epoch in epochs] == [72] * 4
    if lanes == 1:
        # By default, an epoch has each record once.
        assert all(len({*epoch}) == 72 for epoch in epochs)
    assert len({record for epoch in epochs for record in epoch}) == 72
    assert epochs[0] != epochs[1]
    assert data.fed == {name: 4 * size for name, size in SIZES.items()}
    data.set_weights({"cat": 0, "dog": 1, "eel": 1})
    boosted = [record for _ in range(7) for record in written.values(data)]
    names = Counter(map(name_of, boosted))
    assert names == {"dog": 252, "eel": 252}
    repeats = Counter(one for one in boosted if name_of(one) == "eel").values()
    assert len(repeats) == 7
    # Lanes divide a class anew in each of its epochs.
    assert max(repeats) < (37 if lanes == 1 else 2 * min(repeats))
    assert data.fed["cat"] == 160


def in_turn(shares: list[Iterator[Batch]]) -> Iterator[Batch]:
    for batches in zip_longest(*shares):
        yield from (batch for batch in batches if batch is not None)


@given(
    options=st.fixed_dictionaries(
        {
            "lanes": st.integers(1, 7),
            "batch_size": st.integers(1, 20),
            "window_bytes": st.sampled_from([0, 1000, 1 << 20]),
        }
    ),
    processes=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    change=st.integers(0, 12),
    cut=st.integers(0, 12),
)
@examples(15)
def test_all_divisions_have_the_same_order(
    folder: Path, options: dict[str, Any], processes: tuple[int, int], change: int, cut: int
) -> None:
    workers, ranks = processes
    alone = mixture(folder, **options)
    alone.set_weights({"eel": 50, "cat": 1}, at=change)
    expected = [one for _ in range(3) for one in seen(list(alone))]
    # It is broken off, and resumed by several ranks, each with several workers.
    first = mixture(folder, **options)
    first.set_weights({"eel": 50, "cat": 1}, at=change)
    found = seen([batch for _, batch in zip(range(cut), first, strict=False)])
    state = json.loads(json.dumps(first.state_dict()))
    several = [mixture(folder, rank=rank, ranks=ranks, **options) for rank in range(ranks)]
    for one in several:
        one.load_state_dict(state)
    lengths = {len(one) for one in several}
    assert len(lengths) == 1
    shares = [in_turn([one.share(worker, workers) for worker in range(workers)]) for one in several]
    found += seen(list(in_turn(shares)))
    assert found == expected[: len(found)]
    assert len(found) == min(cut, len(expected) // 3) + ranks * lengths.pop()


def test_ranks_that_change_alike_have_the_same_order(folder: Path) -> None:
    def run(rank: int, ranks: int) -> list[tuple[int, list[bytes]]]:
        data = mixture(folder, rank=rank, ranks=ranks, lanes=2)
        found = []
        for _ in range(3):
            for batch in data:
                found.append(batch)
                if batch.number // ranks == 2:
                    assert data.boost({"eel": 9}) == 3 * ranks
        return seen(found)

    both = [run(rank, 2) for rank in range(2)]
    alone = mixture(folder, lanes=2)
    alone.boost({"eel": 9}, at=6)
    expected = [one for _ in range(3) for one in seen(list(alone))]
    assert [one for pair in zip(*both, strict=True) for one in pair] == expected
    assert [mixture(folder, rank=0, ranks=5).__len__(), len(alone)] == [3, 12]


# Torch warns of more workers than processors.
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0},
        {"num_workers": 2, "persistent_workers": True},
        pytest.param({"num_workers": 1, "prefetch_factor": 5}, marks=pytest.mark.thorough),
        pytest.param({"num_workers": 3}, marks=pytest.mark.slow),
        pytest.param(
            {"num_workers": 2, "multiprocessing_context": "spawn"}, marks=pytest.mark.slow
        ),
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_weights_change_under_workers(folder: Path, options: dict[str, Any]) -> None:
    data = mixture(folder, batch_size=2)
    loader = TorchLoader(data, collate=list, **options)
    ahead = options["num_workers"] * options.get("prefetch_factor", 2)
    found, changes = [], []
    for epoch in range(2):
        for batch in loader:
            found.append(batch)
            if batch.number % 36 == 3:
                assert data.set_weights({"eel": 100 - epoch}, at=30 + 36 * epoch)
            if batch.number % 36 in (4, 5, 20):
                factor = float(batch.number)
                begin = data.boost({"cat": factor, "dog": 2.0})
                # It holds for the first batch that no worker had been asked for.
                assert begin == batch.number + 1 + ahead
                changes.append((begin, factor))
    alone = mixture(folder, batch_size=2)
    for epoch in range(2):
        alone.set_weights({"eel": 100 - epoch}, at=30 + 36 * epoch)
    for begin, factor in changes:
        alone.boost({"cat": factor, "dog": 2.0}, at=begin)
    assert seen(found) == seen([*alone, *alone])
    with pytest.raises(ConfigError, match=r"at = 40: batches up to 71 have been begun"):
        data.set_weights({"eel": 2}, at=40)
    # Resumed without workers, it continues with the change that is pending.
    rest = iter(loader)
    next(rest)
    data.set_weights({"eel": 1e6})
    resumed = mixture(folder, batch_size=2)
    resumed.load_state_dict(loader.state_dict())
    assert resumed.weights == data.weights
    assert seen(list(rest)) == seen(list(resumed))


def test_a_worker_does_not_see_weights_of_later_batches_that_are_written_meanwhile() -> None:
    history = History([(0, np.ones(2)), (3, np.array([2.0, 1.0]))])
    shared = np.zeros(Board.size(2, 1, 4))
    training = Board(shared, 2, 1)
    training.write(Blend.begin(1, 1, 2), history)

    class Interrupted(np.ndarray[Any, Any]):
        """Array of a worker, which the training writes when the worker has just compared it."""

        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: Any) -> Any:
            result = getattr(ufunc, method)(*map(np.asarray, inputs))
            if ufunc is np.less_equal:
                history.change(8, {0: 9.0})
                training.change(history, 4)
            return result

    worker = Board(shared.view(Interrupted), 2, 1)
    # The change replaces the weights up to batch 2, which are not needed any more.
    assert worker.at(7).tolist() == [2, 1]
    assert worker.at(8).tolist() == [9, 1]


def test_a_worker_of_an_iteration_that_was_broken_off_draws_nothing() -> None:
    # As while the position of the next one is being written.
    unwritten = Board(np.full(Board.size(2, 1, 4), np.inf), 2, 1)
    with pytest.raises(ConfigError, match="batch 3: its iteration was broken off"):
        unwritten.at(3)
    later = Board(np.zeros(Board.size(2, 1, 4)), 2, 1)
    later.write(
        Blend(2, 9, np.zeros((1, 2), np.int64), np.zeros((1, 2))), History([(9, np.ones(2))])
    )
    assert later.at(9).tolist() == [1, 1]
    with pytest.raises(ConfigError, match="batch 3"):
        later.at(3)


def test_a_worker_is_independent_of_a_thread_that_held_the_lock_at_its_fork(folder: Path) -> None:
    data = mixture(folder)
    board = data.board(0)
    data.publish(board, 0)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with data._drawing:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        data.follow(board)
        assert next(data.share(0, 1)).number == 0
    finally:
        done.set()
        thread.join()


def test_a_change_by_another_thread_while_a_batch_is_awaited_is_one_batch_later(
    folder: Path,
) -> None:
    data, alone = mixture(folder), mixture(folder)
    data.publish(data.board(4), 4)
    assert data.set_weights({"cat": 9}) == 4
    # Torch asks a worker for batch 4 before it hands over batch 0.
    data.expect()
    assert data.set_weights({"cat": 8}) == 5
    data.deliver(next(iter(alone)))
    assert data.set_weights({"cat": 7}) == 5


def test_an_abandoned_iteration_does_not_stop_changes(folder: Path) -> None:
    data = mixture(folder, batch_size=2)
    loader = TorchLoader(data, collate=list, num_workers=1)
    abandoned: Any = iter(loader)
    next(abandoned)
    batches = iter(loader)
    next(batches)
    abandoned.close()
    begin = data.boost({"eel": 0})
    drawn = [batch for batch in batches if batch.number >= begin]
    assert drawn
    assert not any(name_of(value) == "eel" for batch in drawn for value in batch.values)


def test_an_abandoned_loader_does_not_delay_changes(folder: Path) -> None:
    data = mixture(folder, batch_size=2)
    abandoned: Any = iter(TorchLoader(data, collate=list, num_workers=1))
    next(abandoned)
    batches = iter(data)
    assert next(batches).number == 1
    abandoned.close()
    # The next batch, not one that no worker has prefetched.
    assert data.boost({"eel": 0}) == 2


TRAINER = """
import json, sys
from pathlib import Path
from vinedresser.data import Mixture

def decode(value, name):
    return name + value.hex()

if __name__ == "__main__":
    folder, log, workers = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    data = Mixture({path.name: path for path in sorted(folder.iterdir())}, batch_size=3, seed=5,
                   lanes=2, chunk_bytes=400, window_bytes=2000, decode=decode)
    source = data
    if workers:
        from vinedresser.data import TorchLoader
        source = TorchLoader(data, num_workers=workers, collate=list)
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    lines = [line for line in lines if line.endswith("\\n")]
    log.write_text("".join(lines))
    if lines:
        source.load_state_dict(json.loads(lines[-1])["position"])
    print("ready", flush=True)
    with log.open("a") as file:
        while data.epoch < 2:
            for batch in source:
                if batch.number % 7 == 2:
                    data.boost({"dog": 1 + batch.number, "eel": 0.5}, at=batch.number + 9)
                entry = {"values": batch.values, "position": source.state_dict()}
                file.write(json.dumps(entry) + "\\n")
                file.flush()
                print(batch.number, flush=True)
"""


def killed_until_done(folder: Path, log: Path, workers: list[int], seed: int) -> None:
    """Run the trainer with numbers of workers in turn and kill each; then run it to its end."""
    chance = random.Random(seed)
    script = log.with_suffix(".py")
    script.write_text(TRAINER, encoding="utf-8")
    for number in workers:
        command = [sys.executable, str(script), str(folder), str(log), str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as training:
            assert training.stdout is not None
            for _ in range(1 + chance.randrange(9)):
                training.stdout.readline()
            kill(training)
    subprocess.run([*command[:-1], "0"], check=True, stdout=subprocess.DEVNULL, timeout=120)


def check_kills(folder: Path, tmp_path: Path, workers: list[int], seed: int) -> None:
    log, undisturbed = tmp_path / "log", tmp_path / "undisturbed"
    killed_until_done(folder, log, workers, seed)
    script = [sys.executable, str(log.with_suffix(".py")), str(folder), str(undisturbed), "0"]
    subprocess.run(script, check=True, stdout=subprocess.DEVNULL, timeout=120)
    found, expected = (path.read_text(encoding="utf-8") for path in (log, undisturbed))
    assert found == expected
    assert len(found.splitlines()) == 48


@pytest.mark.thorough
def test_a_kill_neither_loses_nor_repeats_a_record(folder: Path, tmp_path: Path) -> None:
    check_kills(folder, tmp_path, [0, 2, 0], seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_many_kills_neither_lose_nor_repeat_a_record(
    folder: Path, tmp_path: Path, seed: int
) -> None:
    check_kills(folder, tmp_path, [0, 1, 0, 2, 3, 0, 0, 2, 0, 0], seed=seed)


def test_records_have_their_class_and_origin(folder: Path, tmp_path: Path) -> None:
    data = mixture(folder, decode=lambda value, name: (name, value))
    for batch in data:
        for (name, value), origin in zip(batch.values, batch.origins, strict=True):
            assert name == name_of(value) == Path(origin.uri).parent.name
            assert (
                value
                == written.records(SIZES[name], seed=[*SIZES].index(name))[
                    origin.record + SIZES[name] // 3 * (Path(origin.uri).stem == "1")
                ]
            )
    content = bytearray((folder / "eel" / "1.tfrecord").read_bytes())
    content[13] ^= 1
    (tmp_path / "eel.tfrecord").write_bytes(content)
    sources = {"cat": folder / "cat", "eel": tmp_path / "eel.tfrecord"}
    with pytest.raises(DamagedData, match=r"eel.tfrecord: record 0 at byte 0: the checksum"):
        list(Mixture(sources, batch_size=5))
    damaged = Mixture(sources, batch_size=5, skip_damaged=1, decode=lambda _, name: name)
    assert Counter(written.values([*damaged, *damaged])) == {"cat": 80, "eel": 8}
    assert [error.record for error in damaged.damaged] == [0]


def test_small_classes_are_read_once(folder: Path) -> None:
    data = mixture(folder)
    list(data)
    read = data.statistics.bytes
    for _ in range(3):
        list(data)
    assert data.statistics.bytes == read


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda data, _: data.boost({"catt": 2}), r"no class 'catt'; did you mean cat\?"),
        (lambda data, _: data.set_weights({"x": 2}), "no class 'x'; it has cat, dog, eel"),
        (lambda data, _: data.boost({"cat": float("nan")}), "weight of cat = nan: must be a"),
        (lambda data, _: data.set_weights({"cat": -1.0}), "weight of cat = -1.0: must be a"),
        (lambda data, _: data.set_weights(dict.fromkeys(SIZES, 0)), "all classes would be 0"),
        (lambda data, _: data.set_weights({"cat": 2}, at=math.nan), "at = nan: must be a whole"),
        (lambda data, _: data.boost(["cat"]), r"weights = \['cat'\]: must be a mapping of names"),
        (lambda _, one: mixture(one, weights={"cat": 1}), "weights: dog, eel missing"),
        (lambda _, one: mixture(one, weights=dict.fromkeys(SIZES, 0)), "of all classes are 0"),
        (lambda _, one: mixture(one, lanes=8), "'eel' has 7 records, which is less than one for"),
        (lambda _, one: Mixture({}, batch_size=1), "must be a mapping of names"),
        (lambda _, one: Mixture({"a=b": one}, batch_size=1), "class 'a=b': the name must"),
        (
            lambda _, one: Mixture({"all": one, "cat": one / "cat"}, batch_size=1),
            r"cat/0.tfrecord is in 'all' and in 'cat'",
        ),
    ],
)
def test_invalid_arguments_are_named(folder: Path, make: Any, message: str) -> None:
    data = mixture(folder)
    before = data.state_dict()
    with pytest.raises(ConfigError, match=message):
        make(data, folder)
    assert data.state_dict() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 7}, "saved with batch_size = 7, and this data set has 6"),
        ({"classes": {"cat": 1}}, "saved with classes = "),
        ({"counts": [[1, 0, 0]]}, "not one that state_dict"),
        ({"lacking": [[0.0, 0.0]]}, "not one that state_dict"),
        ({"weights": [[0, [0, 0, 0]]]}, "not one that state_dict"),
        ({"weights": []}, "not one that state_dict"),
        ({"batch": "x"}, "the position has batch = 'x'"),
        # With either, drawing a batch would not end.
        ({"lacking": [[1e308, 0.0, -1e308]]}, "not one that state_dict"),
        ({"weights": [[0, [1e308, 1e308, 1]]]}, "not one that state_dict"),
    ],
)
def test_foreign_positions_are_refused(folder: Path, changes: dict[str, Any], message: str) -> None:
    data = mixture(folder)
    with pytest.raises(ConfigError, match=message):
        data.load_state_dict(data.state_dict() | changes)
