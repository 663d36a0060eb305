"""Measuring how fast training data is read on this machine, by ways and settings."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from vinedresser.data.dataset import Dataset
from vinedresser.data.formats.base import Chunk
from vinedresser.data.formats.registry import open_format
from vinedresser.data.index import Index, make_index
from vinedresser.data.sources.finding import find_objects
from vinedresser.data.statistics import Statistics
from vinedresser.objects import is_remote
from vinedresser.objects.read_ahead import read_ahead

__all__ = ["Benchmark", "Measured", "Settings", "measure_reading"]

_STAGES = ("waiting", "parsing", "decoding")
# Larger objects are not read as a whole.
_LARGEST_WHOLE = 256 << 20
_DOWNLOADS = 4
# Settings within this share of the fastest one count as equally fast: repetitions differ as much.
_AS_FAST = 0.95


class Settings(NamedTuple):
    """Settings of a `Dataset`."""

    connections: int = 16
    chunk_bytes: int = 4 << 20


@dataclass(frozen=True)
class Measured:
    """What reading in one way took, the median round.

    Attributes:
        way: name of the way.
        records_per_second: records, 0 if it does not divide the bytes into records.
        gaps: median, 95th percentile and maximum of the seconds between two batches, without the
            first one.
        stages: share of the time by stage (see `Statistics`); {} if it has none.
        settings: settings of the data set; None if it is none.
        choppiness: the 95th percentile of the gaps divided by their median.
    """

    way: str
    records_per_second: float
    bytes_per_second: float
    gaps: tuple[float, float, float]
    stages: dict[str, float]
    settings: Settings | None = None

    @property
    def choppiness(self) -> float:  # noqa: D102 (see the class)
        return self.gaps[1] / self.gaps[0] if self.gaps[0] else 1.0


@dataclass(frozen=True)
class Benchmark:
    """Measurements of a source.

    Attributes:
        objects: number of objects.
        records: number of records.
        size: bytes of all objects.
        measured: a measurement for each way.
        proposed: the defaults if they are among the fastest, else of these the settings with the
            fewest connections and the smallest chunks.
        slowest_stage: the stage that takes most of the time with these settings.
        second_requests: number of slow requests to S3 that were sent a second time.
    """

    format: str
    objects: int
    records: int
    size: int
    measured: list[Measured]
    proposed: Settings
    slowest_stage: str
    second_requests: int

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON types."""
        document = asdict(self)
        for entry, one in zip(document["measured"], self.measured, strict=True):
            entry["settings"] = one.settings and one.settings._asdict()
            entry["choppiness"] = one.choppiness
        return document | {"proposed": self.proposed._asdict()}


class _Round(NamedTuple):
    """One measurement of a way; the times of its batches, and what it read until then."""

    seconds: float
    records: int
    bytes: int
    gaps: list[float]
    stages: dict[str, float]


# What has been read so far, batch by batch without end: records, bytes, and seconds by stage.
_Progress = Iterator[tuple[int, int, dict[str, float]]]


def measure_reading(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,  # noqa: A002 (the word of the field)
    decode: Callable[[Any], Any] | None = None,
    batch_size: int = 256,
    seconds: float = 2.0,
    rounds: int = 3,
    progress: Callable[[int, int], object] = lambda _done, _all: None,
) -> Benchmark:
    """Measure reading in several ways: plain, whole objects, and data sets of several settings.

    The ways take turns, so that what else the machine does meets all of them.

    Args:
        sources: see `Dataset`.
        format: see `Dataset`.
        decode: see `Dataset`.
        batch_size: records per batch.
        seconds: duration of each measurement.
        rounds: number of measurements of each way, after one that is not counted.
        progress: called with the number of measurements done and of all.

    Raises:
        ConfigError: an argument is invalid.
        DamagedData: a record is damaged.
        StoreError: an object cannot be read.
    """
    data = Dataset(sources, batch_size=batch_size, format=format)
    objects = find_objects(sources)
    index = make_index(objects, data.format, open_format(data.format))
    remote = any(is_remote(one.uri) for one in objects)
    opened = partial(Dataset, sources, batch_size=batch_size, format=format, decode=decode)
    statistics = Statistics()
    ways: dict[str, Callable[[], _Progress]] = {"plain reading": partial(_plain, index)}
    if max(one.size for one in objects) <= _LARGEST_WHOLE:
        ways[f"whole objects, {_DOWNLOADS} at a time"] = partial(_whole, index, data.format)
    named = {_name(setting): setting for setting in _settings(remote=remote)}
    for name, settings in named.items():
        ways[name] = partial(_dataset, partial(opened, **settings._asdict()))
    ways["shuffled"] = partial(_dataset, partial(opened, seed=0))
    taken: dict[str, list[_Round]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for place, (name, way) in enumerate(ways.items()):
            one = _timed(way, seconds)
            if number:
                taken[name].append(one)
            progress(number * len(ways) + place + 1, (rounds + 1) * len(ways))
    measured = [_measured(name, taken[name], named.get(name)) for name in ways]
    rated = {one.settings: one for one in measured if one.settings}
    fastest = max(one.records_per_second for one in rated.values())
    fast = sorted(
        (settings != Settings(), settings)
        for settings, one in rated.items()
        if one.records_per_second >= _AS_FAST * fastest
    )
    proposed = fast[0][1]
    stages = rated[proposed].stages
    return Benchmark(
        format=data.format,
        objects=len(objects),
        records=index.records,
        size=sum(one.size for one in objects),
        measured=measured,
        proposed=proposed,
        slowest_stage=max(stages, key=lambda stage: stages[stage]),
        second_requests=statistics.second_requests,
    )


def _settings(*, remote: bool) -> list[Settings]:
    """Return the settings to try, the default among them."""
    connections = (1, 4, 8, 16, 32) if remote else (1, 4, 16)
    return [
        *(Settings(connections=count) for count in connections),
        *(Settings(chunk_bytes=size << 20) for size in (1, 16)),
    ]


def _name(settings: Settings) -> str:
    size = settings.chunk_bytes >> 20
    return f"{settings.connections} connections, {size} MiB"


def _plain(index: Index) -> _Progress:
    """Read the bytes as fast as the defaults of a data set allow, without a look at them."""
    size = Settings().chunk_bytes
    spans = [
        (found, start, min(start + size, found.size))
        for found in index.objects
        for start in range(0, found.size, size)
    ]
    done = 0
    for content in read_ahead(
        itertools.cycle(spans),
        lambda span: span[0].read(*span[1:]),
        size=lambda span: span[2] - span[1],
        max_concurrent=Settings().connections,
        ramp=False,
    ):
        done += len(content)
        yield 0, done, {}


def _whole(index: Index, kind: str) -> _Progress:
    """Load whole objects in a few threads, and divide each into records."""
    opened = open_format(kind)
    chunks = [
        Chunk(number, 0, marks.numbers[-1], 0, found.size)
        for number, (found, marks) in enumerate(zip(index.objects, index.marks, strict=True))
    ]
    records = done = 0
    loaded = read_ahead(
        itertools.cycle(chunks),
        lambda chunk: opened.load(index.objects[chunk.object], chunk),
        size=lambda chunk: chunk.stop,
        max_concurrent=_DOWNLOADS,
    )
    for chunk, content in zip(itertools.cycle(chunks), loaded, strict=False):
        values, _ = opened.values(opened.records(content, chunk).entries())
        records += len(values)
        done += chunk.stop
        yield records, done, {}


def _dataset(opened: Callable[[], Dataset]) -> _Progress:
    data = opened()
    statistics = data.statistics
    while True:
        for _ in data:
            stages = {stage: getattr(statistics, stage) for stage in _STAGES}
            yield statistics.records, statistics.bytes, stages


def _timed(way: Callable[[], _Progress], seconds: float) -> _Round:
    """Read in a way for some seconds, over and over."""
    records = read = 0
    stages: dict[str, float] = {}
    progress = way()
    begun = time.perf_counter()
    times = []
    for records, read, stages in progress:  # noqa: B007 (the last ones are used)
        times.append(time.perf_counter())
        if times[-1] - begun >= seconds:
            break
    # Ends the requests in flight, before the next way begins.
    progress.close()  # type: ignore[attr-defined]
    return _Round(times[-1] - begun, records, read, np.diff(times).tolist(), stages)


def _measured(way: str, rounds: list[_Round], settings: Settings | None) -> Measured:
    middle = sorted(rounds, key=lambda one: one.bytes / one.seconds)[len(rounds) // 2]
    gaps = [gap for one in rounds for gap in one.gaps] or [0.0]
    return Measured(
        way,
        middle.records / middle.seconds,
        middle.bytes / middle.seconds,
        (float(np.quantile(gaps, 0.5)), float(np.quantile(gaps, 0.95)), max(gaps)),
        {stage: taken / middle.seconds for stage, taken in middle.stages.items()},
        settings,
    )
