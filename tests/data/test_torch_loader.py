"""TorchLoader yields the batches of its data set, whatever its workers do."""

from __future__ import annotations

import struct
from pathlib import Path
from pickle import PicklingError
from typing import Any

import numpy as np
import pytest
import torch

from tests.data import written
from vinedresser.data import Batch, Dataset, TorchLoader
from vinedresser.errors import ConfigError, DamagedData


def decode(value: bytes) -> tuple[torch.Tensor, int]:
    (number,) = struct.unpack("<I", value[:4])
    return torch.full((2,), number, dtype=torch.float32), number


def open_data(folder: Path, **options: Any) -> Dataset:
    arguments: dict[str, Any] = {"batch_size": 4, "seed": 1, "lanes": 2, "decode": decode}
    return Dataset(folder, **(arguments | options))


def seen(batches: list[Batch]) -> list[tuple[int, list[int], list[tuple[str, int, int]]]]:
    return [
        (
            batch.number,
            batch.values[1].tolist(),
            [(origin.uri, origin.offset, origin.record) for origin in batch.origins],
        )
        for batch in batches
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    written.write_files(tmp_path / "data", [20, 3, 15])
    return tmp_path / "data"


# Torch warns of more workers than processors.
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0},
        {"num_workers": 2, "persistent_workers": True},
        pytest.param({"num_workers": 3}, marks=pytest.mark.thorough),
        pytest.param(
            {"num_workers": 2, "multiprocessing_context": "spawn"}, marks=pytest.mark.slow
        ),
        pytest.param(
            {"num_workers": 1, "multiprocessing_context": "forkserver"}, marks=pytest.mark.slow
        ),
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_workers_yield_the_same_batches(folder: Path, options: dict[str, Any]) -> None:
    alone = open_data(folder)
    loader = TorchLoader(open_data(folder), **options)
    for _ in range(2):
        assert len(loader) == 10
        expected = [[number for _, number in batch.values] for batch in alone]
        found = list(loader)
        assert [batch.values[1].tolist() for batch in found] == expected
        assert torch.equal(found[0].values[0][:, 0].long(), found[0].values[1])
    # What workers took is known here, and how long they were waited for.
    cost = loader.data.statistics
    assert cost.decoding > 0
    assert (cost.queued > 0) == bool(options["num_workers"])
    # Broken off, it continues where the script was, not where the workers were.
    rest = iter(loader)
    first = [next(rest) for _ in range(3)]
    state = loader.state_dict()
    del rest
    again = TorchLoader(open_data(folder), num_workers=0)
    again.load_state_dict(state)
    whole = open_data(folder)
    whole.load_state_dict({**state, "batch": 0})
    numbers = [[number for _, number in batch.values] for batch in whole]
    assert [one[1] for one in seen([*first, *again])] == numbers
    assert [batch.values[1].tolist() for batch in loader] == numbers[3:]


def test_bytes_come_from_workers_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    # The last ones do not fit where the first ones were.
    contents = [
        [b"", *written.records(30, seed=1)],
        [*written.records(30, seed=2, longest=900), b"", b""],
    ]
    for number, records in enumerate(contents):
        (folder / f"{number}.tfrecord").write_bytes(written.tfrecord(records))
    options: dict[str, Any] = {"seed": None, "lanes": 1, "decode": None, "batch_size": 1}
    alone = open_data(folder, **options)
    loader = TorchLoader(
        open_data(folder, **options), num_workers=2, persistent_workers=True, prefetch_factor=1
    )
    broken_off = iter(loader)
    assert next(broken_off).values == [b""]
    del broken_off
    next(iter(alone))
    for _ in range(2):
        # All are kept: none must change when its worker goes on.
        assert written.values(list(loader)) == written.values(alone)
    with pytest.raises(ConfigError, match="in_order = False: the position needs the order"):
        TorchLoader(alone, num_workers=2, in_order=False)


def decode_many(value: bytes) -> dict[str, Any]:
    numbers = torch.frombuffer(bytearray(value + bytes(-len(value) % 16)), dtype=torch.int16)
    return {
        "tensors": [numbers, numbers.bfloat16(), numbers > 0, numbers[:0], numbers[0]],
        "strided": numbers.view(-1, 2).T,
        "conjugate": torch.complex(numbers.float(), numbers.float()).conj(),
        "parameter": torch.nn.Parameter(numbers.double()),
        "arrays": (numbers.numpy(), numbers.view(-1, 2).numpy().T, np.arange(3.0)[::2]),
        "others": [value, value[:2].hex(), {}, None, 0.5],
    }


def unchanged(values: list[Any]) -> list[Any]:
    return values


def described(value: Any) -> Any:
    """Return what must be the same: types, layouts and contents."""
    if isinstance(value, torch.Tensor):
        kind = (type(value), value.dtype, value.shape, value.stride())
        return *kind, value.resolve_conj().flatten().tolist()
    if isinstance(value, np.ndarray):
        return value.dtype, value.flags.writeable, value.tolist()
    if isinstance(value, dict):
        return {name: described(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [*map(described, value)]
    return value


def test_any_values_come_from_workers_as_they_are(folder: Path) -> None:
    alone, apart = (
        TorchLoader(
            open_data(folder, decode=decode_many, batch_size=2),
            collate=unchanged,
            num_workers=workers,
        )
        for workers in (0, 2)
    )
    batches = list(apart)
    found = [described(batch.values) for batch in batches]
    assert found == [described(batch.values) for batch in alone]
    # Each has memory of its own.
    for batch in batches:
        for value in batch.values:
            value["tensors"][0].zero_()
            value["arrays"][0][:] = 1
    tensors = [value["tensors"][0] for batch in batches for value in batch.values]
    assert not any(tensor.any() for tensor in tensors)


def test_a_value_that_cannot_be_sent_is_an_error(folder: Path) -> None:
    loader = TorchLoader(open_data(folder), collate=lambda values: lambda: values, num_workers=1)
    with pytest.raises((AttributeError, PicklingError), match="<lambda>"):
        list(loader)


def test_ranks_share_an_epoch(folder: Path) -> None:
    loaders = [
        TorchLoader(open_data(folder, rank=rank, ranks=3), num_workers=0) for rank in range(3)
    ]
    found = seen([batch for batches in zip(*loaders, strict=True) for batch in batches])
    alone = seen(list(TorchLoader(open_data(folder), num_workers=0)))
    assert found == [*alone, *alone[:2]]


@pytest.mark.thorough
def test_a_damaged_record_in_a_worker_is_named(folder: Path) -> None:
    path = folder / "000.tfrecord"
    content = bytearray(path.read_bytes())
    content[13] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedData, match=f"{path}: record 0 at byte 0: the checksum"):
        list(TorchLoader(open_data(folder), num_workers=2))
    loader = TorchLoader(open_data(folder, skip_damaged=1), num_workers=2)
    for _ in range(2):
        assert sum(len(batch.origins) for batch in loader) == 37
        assert [error.record for error in loader.data.damaged] == [0]


def fail(value: bytes) -> bytes:
    if value == written.records(3, seed=1)[2]:
        raise ZeroDivisionError("of the user")
    return value


def test_an_error_of_decode_names_the_record(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError, match="of the user") as caught:
        list(open_data(folder, decode=fail))
    (note,) = caught.value.__notes__
    assert note.startswith(f"while decoding {folder}/001.tfrecord: record 2 at byte ")


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize(
    "options", [None, {}, {"num_workers": 2, "persistent_workers": True}], ids=str
)
def test_an_iteration_ends_when_another_one_has_begun(
    folder: Path, options: dict[str, Any] | None
) -> None:
    data = open_data(folder)
    batches: Any = data if options is None else TorchLoader(data, collate=list, **options)
    expected = [batch.number for batch in open_data(folder)]
    first, second = iter(batches), iter(batches)
    found = [next(first).number, next(second).number]
    with pytest.raises(ConfigError, match="another iteration of this data set has begun"):
        next(first)
    assert data.state_dict()["batch"] == 2
    # The later one has all that is left of the epoch.
    assert [*found, *(batch.number for batch in second)] == expected


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize("options", [None, {}, {"num_workers": 2}], ids=str)
def test_an_iteration_ends_when_a_position_is_loaded(
    folder: Path, options: dict[str, Any] | None
) -> None:
    data = open_data(folder)
    batches: Any = data if options is None else TorchLoader(data, collate=list, **options)
    expected = [batch.number for batch in open_data(folder)]
    state = batches.state_dict()
    running = iter(batches)
    next(running)
    with pytest.raises(ConfigError, match="the position was saved with"):
        batches.load_state_dict({**state, "batch_size": 1})
    # A position that is refused ends nothing.
    next(running)
    batches.load_state_dict(state)
    with pytest.raises(ConfigError, match="load_state_dict has moved the position"):
        next(running)
    assert [batch.number for batch in batches] == expected
    assert data.delivered.iterations == 2
