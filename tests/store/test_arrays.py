"""Arrays that users save are read back equal, whatever their memory layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load

from vinedresser.capture import Hook
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.step_record import HostTensor
from vinedresser.testing.runs import make_run, step_record

CUBE = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
READ_ONLY = np.frombuffer(bytes(range(8)), np.uint8)
SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 5e-324, 2.2e-308, 1.7e308]

ARRAYS: dict[str, NDArray[Any]] = {
    "turned": CUBE.T,
    "every other": CUBE[::2, ::2, 1::3],
    "backwards": CUBE[::-1, :, ::-1],
    "fortran": np.asfortranarray(CUBE),
    "broadcast": np.broadcast_to(np.float32(7), (3, 2)),
    "big-endian": CUBE.astype(">f4"),
    "big-endian, turned": CUBE.astype(">f8").T,
    "big-endian integers": np.arange(5, dtype=">i2"),
    "field of a record": np.zeros(4, [("a", np.int8), ("b", np.float64)])["b"],
    "read-only": READ_ONLY,
    "0-d": np.array(1.5),
    "empty": np.empty((3, 0, 2), np.float32),
    "special": np.array(SPECIAL),
    "denormals": np.array([1e-40, -1e-45], np.float32),
    "complex": np.array([1 + 2j, complex(np.nan, -0.0)], np.complex64),
    "booleans": CUBE[0] > 3,
    "halves": CUBE.astype(np.float16),
}


def assert_equal(found: NDArray[Any], given: NDArray[Any]) -> None:
    native = np.ascontiguousarray(given, given.dtype.newbyteorder("=")).reshape(given.shape)
    assert (found.dtype, found.shape) == (native.dtype, native.shape)
    assert found.tobytes() == native.tobytes()


def saved(folder: Path, values: dict[str, NDArray[Any]]) -> Run:
    """Save arrays in a loop that no framework is in."""
    hook = Hook(folder)
    for name, value in values.items():
        hook.save(name, value)
    hook.step()
    hook.close()
    return open_run(folder)


def test_arrays_are_read_back_equal(tmp_path: Path) -> None:
    run = saved(tmp_path / "run", {name: ARRAYS[name] for name in ARRAYS})
    for name, given in ARRAYS.items():
        found = run.tensor(f"saved/{name}").value(0)
        assert_equal(found, given)
    assert run.problems == []


@pytest.mark.parametrize("name", ARRAYS)
def test_a_record_may_have_any_of_them(tmp_path: Path, name: str) -> None:
    given = ARRAYS[name]
    kind = {"f": "F", "i": "I", "u": "U", "b": "BOOL", "c": "C"}[given.dtype.kind]
    spelling = kind if kind == "BOOL" else f"{kind}{8 * given.itemsize}"
    record = step_record(0)
    record.tensors = {"x": HostTensor(spelling, given.shape, given)}
    run = make_run(tmp_path, [record])
    assert_equal(run.tensor("x").value(0), given)


def test_an_unsupported_array_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The training continues, and its other data is saved."""
    hook = Hook(tmp_path / "run")
    hook.save("spectrum", np.zeros(3, np.complex128))
    hook.save("words", np.array(["a", "b"]))
    hook.save("fine", np.ones(2))
    hook.step()
    hook.close()
    run = open_run(tmp_path / "run")
    assert run.tensor_names() == ["saved/fine"]
    refused = "saved/spectrum is not saved: an array of complex128 cannot be stored"
    assert refused in capsys.readouterr().err


@pytest.mark.thorough
def test_thousands_of_names(tmp_path: Path) -> None:
    names = [f"outputs/{'ü' * (number % 50)}/{number}'\"#|/" for number in range(5_000)]
    names[0] = "outputs/" + "long" * 5_000
    steps = [
        step_record(
            step, tensors={name: np.full(2, number + step) for number, name in enumerate(names)}
        )
        for step in range(2)
    ]
    run = make_run(tmp_path, steps)
    assert run.tensor_names() == names
    for number in (0, 1, 49, 2_500, 4_999):
        assert run.tensor(names[number]).value(1).tolist() == [number + 1] * 2
    (segment,) = (tmp_path / "segments/0").iterdir()
    assert sorted(load(segment.read_bytes())) == sorted(names)
