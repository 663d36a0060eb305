"""Written data is read back equal by every reading method."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.property_tests import examples
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.reductions import base_name
from vinedresser.store.step_record import MODES, StepRecord
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, start_run, step_record

DTYPES: list[Any] = [
    *"?bBhHeiIfFdqQ",
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e8m0fnu,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2fnuz,
]
# Few enough to meet again at other steps, with another shape and type.
NAMES = st.sampled_from(
    [
        *("weights/a", "weights/a#1", "outputs/ö/層[0]", "__metadata__", "columns#1", ""),
        *("saved/\n\"'\\", "a|b", "a\0b", "\x7f/../" + 300 * "長い"),
    ]
) | st.text(max_size=8).filter(lambda name: base_name(name) is None)
FLOATS = st.floats(width=64)


@st.composite
def arrays(draw: st.DrawFn) -> NDArray[Any]:
    """Any bits of any type: NaN with any payload, infinities, 0-d, empty."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(st.lists(st.integers(0, 3), max_size=3).map(tuple))
    count = int(np.prod(shape, dtype=int))
    if dtype == np.bool_:
        bits = draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
        return np.array(bits, np.bool_).reshape(shape)
    size = count * dtype.itemsize
    content = draw(st.binary(min_size=size, max_size=size))
    values: NDArray[Any] = np.frombuffer(content, np.uint8).view(dtype)
    return values.reshape(shape)


@st.composite
def histories(draw: st.DrawFn) -> list[StepRecord]:
    records, step = [], 0
    for _ in range(draw(st.integers(1, 8))):
        step += draw(st.integers(0, 3))
        statistics = st.dictionaries(st.sampled_from(["min", "l2", "std"]), FLOATS, min_size=1)
        record = step_record(
            step,
            mode=draw(st.sampled_from(MODES)),
            at=draw(st.floats(0, 2e9)),
            tensors=draw(st.dictionaries(NAMES, arrays(), max_size=4)),
            scalars=draw(st.dictionaries(NAMES, FLOATS, max_size=3)),
            reductions=draw(st.dictionaries(NAMES, statistics, max_size=3)),
        )
        if record.tensors:
            # The same tensor under further names, some of which are others' elsewhere.
            for name in draw(st.lists(NAMES, max_size=3)):
                record.tensors[name] = draw(st.sampled_from(list(record.tensors.values())))
        records.append(record)
    return records


@contextmanager
def stored(records: list[StepRecord], cuts: list[int]) -> Iterator[Run]:
    """Write the records, with a commit after some of them."""
    folder = Path(tempfile.mkdtemp())
    try:
        start_run(folder)
        writer = RunWriter(LocalStorage(folder))
        for number, record in enumerate(records):
            assert writer.add(record)
            if number in cuts:
                assert writer.flush()
        assert writer.close()
        assert writer.problems == []
        end_run(folder)
        yield open_run(folder)
    finally:
        shutil.rmtree(folder)


def assert_same_bits(found: NDArray[Any], record: StepRecord, name: str) -> None:
    given_ = record.tensors[name]
    assert found.shape == given_.shape
    assert found.dtype == given_.data.dtype
    assert found.tobytes() == given_.data.tobytes()
    assert not found.flags.writeable


def same(found: object, expected: object) -> None:
    """Compare numbers in mappings, NaN being equal to NaN."""
    np.testing.assert_equal(found, expected)


@examples(60)
@given(histories(), st.lists(st.integers(0, 8), max_size=3))
def test_steps_come_back_equal(records: list[StepRecord], cuts: list[int]) -> None:
    with stored(records, cuts) as run:
        steps = list(run.follow())
        assert len(steps) == len(records)
        for ordinal, (step, record) in enumerate(zip(steps, records, strict=True)):
            assert (step.mode, step.step, step.rank) == (record.mode, record.step, 0)
            assert step.ordinal == ordinal
            assert abs(step.time - record.time) <= 2e-6
            same(dict(step.scalars), record.scalars)
            same(dict(step.reductions), record.reductions)
            assert sorted(step.tensor_names) == sorted(record.tensors)
            for name in record.tensors:
                assert_same_bits(step.tensor(name), record, name)
        assert run.problems == []


@pytest.mark.thorough
@examples(60)
@given(histories(), st.lists(st.integers(0, 8), max_size=3), st.booleans())
def test_values_and_columns_come_back_equal(
    records: list[StepRecord], cuts: list[int], loaded: bool
) -> None:
    with stored(records, cuts) as run:
        if loaded:  # else single tensors are found by bisection
            run.refresh()
        # The last of several records with one mode and step counts.
        last = {(r.mode, r.step, name): r for r in records for name in r.tensors}
        for (mode, step, name), record in last.items():
            assert_same_bits(run.tensor(name).value(step, mode), record, name)
        for name in {name for record in records for name in record.tensors}:
            having = [record for record in records if name in record.tensors]
            view = run.tensor(name)
            every = list(view.values(mode=None))
            assert [step for step, _ in every] == [record.step for record in having]
            for (_, value), record in zip(every, having, strict=True):
                assert_same_bits(value, record, name)
            for mode in MODES:
                found = [step for step, _ in view.values(mode)]
                assert found == [record.step for record in having if record.mode == mode]
            assert view.steps(mode=None).tolist() == sorted({record.step for record in having})
            assert view.shape == having[-1].tensors[name].shape
            assert view.dtype == having[-1].tensors[name].data.dtype
        for name, column in run.scalars().items():
            having = [record for record in records if name in record.scalars]
            assert column.steps.tolist() == [record.step for record in having]
            assert [MODES[mode] for mode in column.modes] == [record.mode for record in having]
            same(column.values.tolist(), [record.scalars[name] for record in having])
        assert set(run.scalar_names()) == {name for r in records for name in r.scalars}
        for name, column in run.reductions("l2", mode="train").items():
            expected = [
                (record.step, record.reductions[name]["l2"])
                for record in records
                if record.mode == "train" and "l2" in record.reductions.get(name, {})
            ]
            same(list(zip(column.steps.tolist(), column.values.tolist(), strict=True)), expected)
        captured = {name for r in records for name in (*r.tensors, *r.reductions)}
        assert set(run.tensor_names()) == captured
