"""Whether the workers of a data loader draw the same random numbers, or load the same rows."""

from __future__ import annotations

import builtins
import hashlib
import json
import mmap
import os
import random
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils.data import _utils, get_worker_info

from vinedresser.capture.shield import Shield
from vinedresser.frameworks.methods import wrap
from vinedresser.frameworks.script_line import line_of
from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop
from vinedresser.frameworks.torch_.nesting import leaves

__all__ = ["WORKERS", "WorkerStates"]

# Iterators and workers that have a place of their own, the bytes for the report of a worker, and
# those of its size.
_LOADERS, _WORKERS, _ROOM, _SIZE = 8, 16, 4096, 4
# Depth at which a generator is looked for in a data set, number of objects looked at, and of the
# items of a list.
_DEPTH, _OBJECTS, _ITEMS = 3, 200, 16
_LIBRARIES = ("random", "numpy.random.mtrand", "builtins")
_GLOBAL = ("random", "numpy.random", "torch")
_FETCHERS = (_utils.fetch._MapDatasetFetcher, _utils.fetch._IterableDatasetFetcher)
# In a worker: the fetchers whose first batch was compared.
_SEEN: set[int] = set()

_States = dict[str, bytes]


@dataclass
class _Loader:
    """What is known of the workers of a data loader's iterator.

    Attributes:
        left: batches until their reports must be complete.
        breach: what two of them have in common, see `RunRecord.breaches`; None if nothing.
    """

    left: int
    breach: dict[str, Any] | None = None


class WorkerStates(LoopListener):
    """Compares what the workers of a data loader began and ended their first batch with.

    Workers that are forked inherit the wrapper around the loading of a batch. Each writes one
    report into memory that it shares with this process; nothing else of it is changed, and no
    number drawn.
    """

    def __init__(self) -> None:
        # What workers of the iterator in use have in common, and its number of batches.
        self._breach: dict[str, Any] | None = None
        self._iterator: weakref.ref[Any] | None = None
        self._batches = 0
        self._memory: mmap.mmap | None = None
        self._shield = Shield()
        self._loaders: weakref.WeakKeyDictionary[Any, _Loader] = weakref.WeakKeyDictionary()

    def start(self) -> None:
        """Compare the workers of data loaders that are iterated over from now on."""
        if self._memory is None:
            self._memory = mmap.mmap(-1, _LOADERS * _WORKERS * _ROOM)
            for kind in _FETCHERS:
                wrap(kind, "fetch", self._observed)
            listen_to_loop(self, self._shield.guard)

    @property
    def breach(self) -> dict[str, Any] | None:
        """What workers have in common that loaded the batch in use, see `RunRecord.breaches`."""
        if self._breach is None or self._iterator is None:
            return None
        # An evaluation may have come to the end of another data loader since.
        iterator = self._iterator()
        return None if getattr(iterator, "_num_yielded", -1) != self._batches else self._breach

    def batch_awaited(self, iterator: Any) -> None:
        """See `LoopListener.batch_awaited`."""
        if iterator._num_workers < 2:
            self._breach = None
            return
        loader = self._loaders.get(iterator)
        if loader is None:
            loader = self._loaders[iterator] = _Loader(2 * iterator._num_workers)
        if loader.left:
            loader.left -= 1
            loader.breach = self._common(iterator)
            loader.left *= loader.breach is None
        self._breach, self._batches = loader.breach, iterator._num_yielded + 1
        self._iterator = weakref.ref(iterator)

    def _common(self, iterator: Any) -> dict[str, Any] | None:
        """Return what two workers of an iterator have in common, as far as they have reported."""
        # Other iterators may have had the same seed.
        ours = {worker.pid for worker in iterator._workers}
        reports = [
            report for report in self._reports(iterator._base_seed) if report["process"] in ours
        ]
        for what in sorted({name for report in reports for name in report["drew"]}):
            drawn = [report["drew"][what] for report in reports if what in report["drew"]]
            equal = max(map(drawn.count, drawn))
            if equal > 1:
                where = line_of(iterator._worker_init_fn) if what in _GLOBAL else ""
                return {"what": what, "workers": equal, "where": where}
        return None

    def _reports(self, seed: int) -> Iterator[dict[str, Any]]:
        assert self._memory is not None, "set before workers are compared"
        for worker in range(_WORKERS):
            place = _place(seed, worker)
            size = int.from_bytes(self._memory[place : place + _SIZE], "little")
            if size:
                yield json.loads(self._memory[place + _SIZE : place + _SIZE + size])

    def _observed(self, fetcher: Any, fetch: Callable[..., Any]) -> Callable[..., Any]:
        """Return what loads a batch: the method itself but for the first batch of a worker."""
        worker = get_worker_info()
        if worker is None or worker.id >= _WORKERS or id(fetcher) in _SEEN:
            return fetch
        # The fetcher lives as long as its worker.
        _SEEN.add(id(fetcher))
        # The one of the training does nothing in another process.
        guard = Shield().guard
        states = guard("reading the states of a data loader's worker", _states)
        rows = guard("reading the rows of a data loader's worker", _rows)
        note = guard("comparing a data loader's workers", self._note)

        def fetched(indices: Any) -> Any:
            if type(fetcher) is not _FETCHERS[0]:
                batch = fetch(indices)
                note(worker, {"rows": b""}, {"rows": rows(batch) or b""})
                return batch
            before = states(worker.dataset) or {}
            batch = fetch(indices)
            note(worker, before, states(worker.dataset) or {})
            return batch

        return fetched

    def _note(self, worker: Any, before: _States, after: _States) -> None:
        """Report what has changed in a worker from before its first batch to after it."""
        assert self._memory is not None, "set before workers are compared"
        drew = {
            name: _digest(state + after[name])
            for name, state in before.items()
            if after.get(name, state) != state
        }
        text = json.dumps({"process": os.getpid(), "drew": drew}).encode()
        if len(text) <= _ROOM - _SIZE:
            place = _place(worker.seed - worker.id, worker.id)
            self._memory[place : place + _SIZE] = bytes(_SIZE)
            self._memory[place + _SIZE : place + _SIZE + len(text)] = text
            self._memory[place : place + _SIZE] = len(text).to_bytes(_SIZE, "little")


WORKERS = WorkerStates()
"""The workers of the data loaders of this process."""


def _place(seed: int, worker: int) -> int:
    """Return the place of the report of a worker whose iterator has a seed."""
    return (seed % _LOADERS * _WORKERS + worker) * _ROOM


def _states(dataset: Any) -> _States:
    """Return the states of the generators that a data set may use, by name.

    These are the global ones, those that the data set holds, and those of the modules that define
    it and its parts.
    """
    states = (random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state())
    found = dict(zip(_GLOBAL, map(_bytes, states), strict=True))
    seen = {id(dataset)}
    modules = {type(dataset).__module__}
    objects = [(type(dataset).__name__, dataset, 0)]
    while objects and len(seen) < _OBJECTS:
        name, holder, depth = objects.pop(0)
        for key, value in _parts(holder):
            state = _state_of(value)
            if state is not None:
                found[f"{name}.{key}"] = state
            elif depth < _DEPTH and id(value) not in seen:
                seen.add(id(value))
                modules.add(type(value).__module__)
                objects.append((f"{name}.{key}", value, depth + 1))
    for module in modules:
        for key, value in list(vars(sys.modules.get(module, builtins)).items()):
            # Python and numpy keep their global generators in modules of theirs.
            if module not in _LIBRARIES and (state := _state_of(value)) is not None:
                found[f"{module}.{key}"] = state
    return found


def _parts(holder: Any) -> list[tuple[str, Any]]:
    """Return the named parts of an object that may hold a generator, without calling its code."""
    if type(holder) in (list, tuple):
        return [(str(place), one) for place, one in enumerate(holder[:_ITEMS])]
    if isinstance(holder, (type, ModuleType, torch.Tensor, np.ndarray)):
        return []
    kept = holder if type(holder) is dict else getattr(holder, "__dict__", None)
    return [(str(key), value) for key, value in list((kept or {}).items())[:_OBJECTS]]


def _state_of(value: Any) -> bytes | None:
    """Return the state of a random generator; None of anything else."""
    if isinstance(value, np.random.Generator):
        return _bytes(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return _bytes(value.get_state(legacy=False))
    if isinstance(value, random.Random):
        return _bytes(value.getstate())
    return _bytes(value.get_state()) if isinstance(value, torch.Generator) else None


def _bytes(state: Any) -> bytes:
    if isinstance(state, torch.Tensor):
        return state.numpy().tobytes()
    if isinstance(state, dict):
        return b"".join(map(_bytes, state.values()))
    return state.tobytes() if isinstance(state, np.ndarray) else repr(state).encode()


def _rows(batch: Any) -> bytes:
    """Return what identifies the rows of a batch; nothing if they are all equal or unknown."""
    parts = [one.numpy() for _, one in leaves(batch) if one.device.type == "cpu"]
    varied = any(part.size and (part != part.flat[0]).any() for part in parts)
    return b"".join(part.tobytes() for part in parts) if varied else b""


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()
