"""Corrupt files of a run: the reader reports them and never returns wrong values."""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.store.damaging import CAPTURED, RECORDS, Damaging, other_bytes, other_json
from tests.store.known_run import KnownRun, Reading
from vinedresser.errors import CorruptData, VinedresserError
from vinedresser.store.index.layout import LayoutPool
from vinedresser.store.index.manifest import SPAN, decode_manifest
from vinedresser.store.reading.reader import Run, open_run

# One manifest and some records behind it.
COMMITS = 104
LONG = KnownRun(COMMITS + 10, 10)
EVERYTHING = set(LONG.values) | LONG.scalars | LONG.statistics
# For inputs by the million: three segments.
SHORT = KnownRun(4, 2)
INPUTS, PARTS = 1_000_000, 40
STORED = {value.tobytes() for run in (LONG, SHORT) for value in run.values.values()} | {b""}
MANIFEST = "manifests/0/000000000000.json"


def write(known: KnownRun) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    known.write(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def original() -> Iterator[Path]:
    yield from write(LONG)


@pytest.fixture(scope="module")
def short() -> Iterator[Path]:
    yield from write(SHORT)


def copied(original: Path) -> Iterator[Path]:
    """Copy a run to damage it; its files are links, and are replaced, never written to."""
    copy = Path(tempfile.mkdtemp()) / "run"
    shutil.copytree(original, copy, copy_function=lambda a, b: Path(b).hardlink_to(a))
    yield copy
    shutil.rmtree(copy.parent)


@pytest.fixture
def folder(original: Path) -> Iterator[Path]:
    assert (original / MANIFEST).exists()
    yield from copied(original)


@pytest.fixture
def short_folder(short: Path) -> Iterator[Path]:
    yield from copied(short)


def look_at(run: Run, chance: random.Random, check: Callable[[Any, Any], None]) -> set[Any]:
    """Read a run in every way there is; return what of the truth was had.

    Args:
        run: the run.
        chance: picks the steps that are read one by one.
        check: called with each tensor that was had: which, and its values.
    """
    reading = Reading(run, check)
    reading.single(chance.sample(range(COMMITS + 12), 3))
    reading.others()
    reading.series()
    reading.columns()
    reading.frame()
    reading.follow()
    return reading.had


def same_as(known: KnownRun) -> Callable[[Any, Any], None]:
    """Return a function that compares a tensor with the truth."""

    def check(key: Any, value: Any) -> None:
        np.testing.assert_array_equal(value, known.values[key], err_msg=str(key))
        assert value.dtype == known.values[key].dtype

    return check


def is_stored(_key: Any, value: Any) -> None:
    """Check that a tensor is one of those that were stored, under whatever name."""
    assert value.tobytes() in STORED


def hurt_bytes(folder: Path, seed: int, rounds: int, *, clutter: bool = False) -> None:
    """Corrupt stored files: values that are read are right, and lost ones are reported."""
    chance = random.Random(seed)
    damaging = Damaging(folder, chance)
    for _ in range(rounds):
        if clutter:
            done = [damaging.clutter()]
        else:
            done = [damaging.bytes_of((*CAPTURED, *CAPTURED, *RECORDS))]
        if not clutter and chance.random() < 0.3:
            done.append(damaging.bytes_of(CAPTURED))
        begun = time.monotonic()
        try:
            run = open_run(folder)
            had = look_at(run, chance, same_as(LONG))
            assert had <= EVERYTHING, done
            # What was committed last leaves no trace when its record is gone.
            assert had == EVERYTHING or run.problems or any("delete index" in one for one in done)
        except VinedresserError:
            assert any(word in " ".join(done) for word in ("run.json", "exit.json")), done
        except BaseException as error:
            error.add_note(f"seed {seed}: {done}")
            raise
        assert time.monotonic() - begun < 20, done
        damaging.heal()
    assert look_at(open_run(folder), chance, same_as(LONG)) == EVERYTHING


def hurt_json(folder: Path, seed: int, rounds: int) -> None:
    """Have records of another shape: nothing but our errors comes of it, and no tensor is wrong."""
    chance = random.Random(seed)
    damaging = Damaging(folder, chance)
    for _ in range(rounds):
        done = damaging.json_of(("index/0/*", "manifests/0/*", "index/0/*0.json", *RECORDS))
        if "index" in done:
            # Its copy would be read else.
            damaging.write(folder / MANIFEST, None)
        begun = time.monotonic()
        try:
            with suppress(VinedresserError):
                look_at(open_run(folder), chance, is_stored)
        except BaseException as error:
            error.add_note(f"seed {seed}: {done}")
            raise
        assert time.monotonic() - begun < 20, done
        damaging.heal()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_corrupt_bytes_are_detected_and_nothing_else_is_lost(folder: Path, seed: int) -> None:
    hurt_bytes(folder, seed, 15)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_strays_and_links_are_never_read(folder: Path, seed: int) -> None:
    hurt_bytes(folder, seed, 15, clutter=True)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_records_of_another_shape_are_refused(folder: Path, seed: int) -> None:
    hurt_json(folder, seed, 30)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 108))
def test_many_corruptions(folder: Path, seed: int) -> None:
    hurt_bytes(folder, seed, 250)
    hurt_bytes(folder, seed, 100, clutter=True)
    hurt_json(folder, seed, 400)


# Ways to read a run, and what of the truth each should have.
WAYS: tuple[tuple[Callable[[Reading], None], set[Any]], ...] = (
    (Reading.series, set(SHORT.values)),
    (Reading.columns, SHORT.scalars | SHORT.statistics),
    (Reading.follow, set(SHORT.values)),
    (Reading.others, set()),
    (lambda reading: reading.single([0, 3]), {key for key in SHORT.values if key[2] in (0, 3)}),
)


def damage(damaging: Damaging, chance: random.Random) -> tuple[list[str], bool]:
    """Damage a run; return descriptions, and whether its records still have right checksums."""
    drawn = chance.random()
    if drawn < 0.35:
        return [damaging.json_of(("index/0/*", "index/0/*", *RECORDS))], True
    if drawn < 0.55:
        return [damaging.clutter()], False
    done = [damaging.bytes_of((*CAPTURED, *RECORDS))]
    if drawn < 0.7:
        done.append(damaging.bytes_of(CAPTURED))
    return done, False


def read_one_way(folder: Path, chance: random.Random, done: list[str], sealed: bool) -> None:
    """Read a damaged run in one of the ways, and check what was had."""
    read, whole = chance.choice(WAYS)
    try:
        run = open_run(folder)
        reading = Reading(run, is_stored if sealed else same_as(SHORT))
        read(reading)
        over = run.status.over
    except VinedresserError:
        assert sealed or any(word in " ".join(done) for word in ("run.json", "exit.json")), done
        return
    if not sealed and (over or read is not Reading.follow):
        assert reading.had <= whole
        told = run.problems or reading.refused
        assert reading.had == whole or told or any("delete index" in one for one in done)


def check_manifest(content: bytes, chance: random.Random) -> None:
    """Decode a damaged manifest: refused, unless its values are others that could be right."""
    if chance.random() < 0.5:
        changed, done = other_bytes(content, chance)
        if changed != content:
            with pytest.raises(CorruptData):
                decode_manifest(changed, LayoutPool(), 0, 0)
        return
    changed, done = other_json(content, chance)
    with suppress(CorruptData):
        assert len(decode_manifest(changed, LayoutPool(), 0, 0)) == SPAN, done


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_million_inputs(
    original: Path, short_folder: Path, part: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "vinedresser")
    chance = random.Random(1000 + part)
    damaging = Damaging(short_folder, chance)
    manifest = (original / MANIFEST).read_bytes()
    inputs = INPUTS // PARTS
    for number in range(inputs):
        if number % 20 == 0:
            check_manifest(manifest, chance)
            continue
        done, sealed = damage(damaging, chance)
        try:
            read_one_way(short_folder, chance, done, sealed)
        except BaseException as error:
            error.add_note(f"part {part}, input {number}: {done}")
            raise
        damaging.heal()
    print(f"part {part}: {inputs:,} inputs")  # noqa: T201 (shown by -s)
