"""The capture configuration of a run: its collections."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Self

from vinedresser.capture.config.asked import Asked
from vinedresser.capture.config.timetable import Timetable
from vinedresser.errors import ConfigError
from vinedresser.store.collections.collection import Collection, check_collection_name
from vinedresser.store.collections.modules import ModuleInfo
from vinedresser.store.collections.schedule import Predicate, SaveConfig

__all__ = ["DEFAULT", "NOTHING", "NOTHING_DUE", "STAGES", "TIMES", "Ask", "CaptureConfig", "Due"]

# Durations that a hook can measure, in seconds.
TIMES = ("timing/step", "timing/wait", "timing/evaluation", "timing/forward")
# What data sets of `vinedresser.data` cost in a step, by the stages of `Statistics.stages`.
STAGES = tuple(f"timing/data_{stage}" for stage in ("waiting", "parsing", "decoding", "queued"))

# Of a collection that only standing queries read.
_ONLY_ASKED = SaveConfig(every=0, tensor=False)
# Sets of queries that are remembered: with a rate, most steps have one of a few.
_MOST_JOINED = 16

# Collections of single numbers and of values that the user saves.
_PLAIN = frozenset({"losses", "metrics", "saved", "timing"})
# Collections that cost next to nothing, by the names that rules give them: a budget keeps them.
_CHEAP = _PLAIN | {"learning_rate", "scheduler"}


class Ask(NamedTuple):
    """What to keep of one tensor at one step.

    Attributes:
        tensor: whether to keep the tensor itself.
        reductions: names of the statistics to compute.
        wanted: whether a due collection holds the tensor; a scalar is kept if this is true.
        rows: maximum number of rows to keep of the tensor; None: all.
        live: whether a standing query reads it at the end of the step.
    """

    tensor: bool
    reductions: frozenset[str]
    wanted: bool = True
    rows: int | None = None
    live: bool = False

    def __bool__(self) -> bool:
        return self.wanted


NOTHING = Ask(False, frozenset(), False)


class Due:
    """The collections that are due at a step, and what they ask of each tensor.

    Args:
        parts: pairs of a collection and one of its due save configs.
        holders: returns the names of the collections that hold the tensor with a full name; None:
            those of the parts are asked.
        asked: what standing queries read in addition, without saving it; None: nothing.

    Attributes:
        parts: pairs of a collection and one of its due save configs, those of `asked` included.
        stored: what is due apart from `asked`.
        plain: there are parts, and all of them hold only numbers, user values or, if only standing
            queries read them, gradients.
        elastic: some parts may be left out to keep a budget (`SaveConfig.elastic`).
    """

    def __init__(
        self,
        parts: tuple[tuple[Collection, SaveConfig], ...],
        holders: Callable[[str], frozenset[str]] | None = None,
        asked: Asked | None = None,
    ) -> None:
        self.asked = asked
        self.stored = self if asked is None else Due(parts, holders)
        self._saved = parts
        self._holders = holders or (lambda name: _holders([one for one, _ in parts], name))
        extra = () if asked is None else asked.collections
        self.parts = (*parts, *((one, _ONLY_ASKED) for one in extra))
        self.plain = bool(self.parts) and (
            all(one.name in _PLAIN for one, _ in parts)
            and (asked is None or len(asked.plain) == len(extra))
        )
        self.elastic = any(save.elastic for _, save in parts)
        self._joined: dict[Asked, Due] = {}
        self._asks: dict[str, Ask] = {}
        self._kinds: dict[str, bool] = {}
        self._places: dict[str, frozenset[str] | None] = {}

    def __bool__(self) -> bool:
        return bool(self.parts)

    def ask(self, name: str) -> Ask:
        """Return what to keep of the tensor with a full name."""
        found = self._asks.get(name)
        if found is None:
            holders = self._holders(name)
            saves = [save for collection, save in self._saved if collection.name in holders]
            reductions = frozenset(word for save in saves for word in save.reductions)
            rows = [save.rows for save in saves if save.wants_tensor]
            live = self.asked is not None and self.asked.holds(name)
            found = Ask(bool(rows), reductions, bool(saves) or live, _most(rows), live)
            found = self._asks[name] = found if found.wanted else NOTHING
        return found

    def joined(self, asked: Asked) -> Due:
        """Return what is due here, and what standing queries read; the same object each time."""
        found = self._joined.get(asked)
        if found is None:
            if len(self._joined) >= _MOST_JOINED:
                self._joined.clear()
            found = self._joined[asked] = Due(self._saved, self._holders, asked)
        return found

    def reaches(self, kind: str) -> bool:
        """Return whether any tensor whose name starts with ``<kind>/`` may be asked for."""
        if kind not in self._kinds:
            self._kinds[kind] = any(collection.reaches(kind) for collection, _ in self.parts)
        return self._kinds[kind]

    def only_at(self, kind: str) -> frozenset[str] | None:
        """Return the paths of modules whose tensors of a kind may be asked for; None: any path."""
        if kind not in self._places:
            found = [collection.only_at(kind) for collection, _ in self.parts]
            named = [paths for paths in found if paths is not None]
            self._places[kind] = frozenset().union(*named) if len(named) == len(found) else None
        return self._places[kind]

    @cached_property
    def times(self) -> frozenset[str]:
        """The requested names of `TIMES` and `STAGES`."""
        return frozenset(filter(self.ask, (*TIMES, *STAGES)))

    def collections(self) -> dict[str, Collection]:
        """Return the due collections by name."""
        return {collection.name: collection for collection, _ in self.parts}


class CaptureConfig:
    """The collections of a run.

    Args:
        collections: collections by name; an unnamed collection is named after its key.

    Attributes:
        collections: collections by name, sorted.

    Raises:
        ConfigError: a collection is unknown and selects no tensors, or its name is not its key.
    """

    def __init__(self, collections: Mapping[str, Collection] | None = None) -> None:
        self.collections: dict[str, Collection] = {}
        for name, collection in sorted((collections or {}).items()):
            if collection.name not in ("", name):
                raise ConfigError(f"{name}: the collection has another name, {collection.name}")
            named = replace(collection, name=name)
            check_collection_name(named)
            self.collections[name] = named
        self._parts = [
            (collection, save)
            for collection in self.collections.values()
            for save in collection.saves
        ]
        # Many save configs share a schedule: one of them, and the indices of all, by schedule.
        schedules: dict[Any, tuple[SaveConfig, list[int]]] = {}
        for number, (_, save) in enumerate(self._parts):
            schedules.setdefault(save.schedule, (save, []))[1].append(number)
        self._schedules = list(schedules.values())
        self._due: dict[tuple[int, ...], Due] = {}
        # By tensor: asking each collection takes longer than what else a step costs.
        self._holders: dict[str, frozenset[str]] = {}
        self._train = Timetable(
            [save for save, _ in self._schedules], lambda step: self._work_out(step, "train")
        )

    @classmethod
    def of(
        cls, given: Mapping[str, SaveConfig | tuple[SaveConfig, ...] | Collection] | None
    ) -> Self:
        """Build a config from the user's save configs and collections by name.

        Raises:
            ConfigError: see the class.
        """
        return cls(
            {
                name: value if isinstance(value, Collection) else Collection(name, save=value)
                for name, value in (given or {}).items()
            }
        )

    def merged(self, other: CaptureConfig) -> CaptureConfig:
        """Return the union of both configs.

        Raises:
            ConfigError: both have a collection of the same name with different regexes.
        """
        both = dict(self.collections)
        for name, collection in other.collections.items():
            both[name] = both[name].merged(collection) if name in both else collection
        return CaptureConfig(both)

    def changed(self, other: CaptureConfig) -> CaptureConfig:
        """Return this config with its collections replaced by those of another config.

        A collection of the other config that selects no tensors keeps the present selection.
        """
        both = dict(self.collections)
        for name, collection in other.collections.items():
            known = both.get(name)
            keep = known is not None and not collection.selects
            both[name] = replace(known, save=collection.save) if known and keep else collection
        return CaptureConfig(both)

    def elastic(self) -> CaptureConfig:
        """Return this config with save configs that may yield to a budget, except for numbers."""
        return CaptureConfig(
            {
                name: replace(one, save=tuple(replace(save, elastic=True) for save in one.saves))
                if name not in _CHEAP
                else one
                for name, one in self.collections.items()
            }
        )

    def of_one_process(self) -> CaptureConfig:
        """Return this config without what only serves to compare ranks: fingerprints, `ranks`."""
        found: dict[str, Collection] = {}
        for name, one in self.collections.items():
            saves = tuple(filter(None, map(SaveConfig.without_fingerprint, one.saves)))
            if saves and name != "ranks" and not (one.regex or "").startswith("^ranks/"):
                found[name] = replace(one, save=saves)
        return CaptureConfig(found)

    def resolved(
        self, modules: Mapping[str, ModuleInfo], path_of: Callable[[Any], str | None]
    ) -> CaptureConfig:
        """Return this config with the modules of its collections resolved to paths.

        Args:
            modules: modules of the watched models by path.
            path_of: return the path of a module object, or None if it is unknown.
        """
        found = {
            collection.name: collection.resolved(modules, path_of)
            for collection in self.collections.values()
        }
        return CaptureConfig(found)

    def guarded(self, guard: Callable[[str, Predicate], Predicate]) -> CaptureConfig:
        """Return this config with shielded predicates; see `SaveConfig.guarded`."""
        return CaptureConfig(
            {
                collection.name: replace(
                    collection, save=tuple(save.guarded(guard) for save in collection.saves)
                )
                for collection in self.collections.values()
            }
        )

    def unresolved(self) -> Iterable[tuple[str, Any]]:
        """Yield the collection's name and the object of each module without a known path."""
        for collection in self.collections.values():
            for module in collection.modules:
                if not isinstance(module, str):
                    yield collection.name, module

    def with_defaults(self) -> CaptureConfig:
        """Return this config with the missing collections of `DEFAULT` added."""
        return CaptureConfig({**DEFAULT.collections, **self.collections})

    def due(self, step: int, mode: str, pace: int = 1) -> Due:
        """Return the due collections; the same object for the same set.

        Args:
            step: number of completed optimizer steps.
            mode: "train", "eval" or "predict".
            pace: factor of the intervals of elastic save configs; see `SaveConfig.due`.
        """
        if mode != "train":
            return self._work_out(step, mode)
        due = self._train.at(step)
        return due if pace == 1 or not due.elastic else self._work_out(step, mode, pace)

    def _work_out(self, step: int, mode: str, pace: int = 1) -> Due:
        key = tuple(
            [place for place, (save, _) in enumerate(self._schedules) if save.due(step, mode, pace)]
        )
        found = self._due.get(key)
        if found is None:
            numbers = sorted(number for place in key for number in self._schedules[place][1])
            parts = tuple(self._parts[number] for number in numbers)
            found = self._due[key] = Due(parts, self._holders_of)
        return found

    def holds(self, name: str) -> bool:
        """Return whether any collection holds the tensor with a full name."""
        return bool(self._holders_of(name))

    def _holders_of(self, name: str) -> frozenset[str]:
        """Return the names of the collections that hold the tensor with a full name."""
        found = self._holders.get(name)
        if found is None:
            found = self._holders[name] = _holders(self.collections.values(), name)
        return found

    def asks(self, name: str, step: int, mode: str) -> Ask:
        """Return what to keep of one tensor at one step."""
        return self.due(step, mode).ask(name)

    def to_json(self) -> dict[str, Any]:
        """Return the collections by name as plain JSON types."""
        return {name: collection.to_json() for name, collection in self.collections.items()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Build a config from the form of `to_json` or the ``[capture.<collection>]`` TOML tables.

        Raises:
            ConfigError: a value is invalid; the message starts with the collection and key.
        """
        return cls({name: Collection.from_json(name, table) for name, table in document.items()})

    def digest(self) -> str:
        """Return the SHA-256 of the canonical JSON, 64 hexadecimal digits."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CaptureConfig) and self.collections == other.collections

    def __hash__(self) -> int:
        return hash(self.digest())

    def __repr__(self) -> str:
        return f"CaptureConfig({self.collections!r})"


def _holders(collections: Iterable[Collection], name: str) -> frozenset[str]:
    """Return the names of those of some collections that hold the tensor with a full name."""
    return frozenset(collection.name for collection in collections if collection.holds(name))


def _most(rows: list[int | None]) -> int | None:
    """Return the maximum of some row limits; None: all rows."""
    given = [most for most in rows if most is not None]
    return max(given) if given and len(given) == len(rows) else None


NOTHING_DUE = Due(())

# Users call `hook.save` deliberately, so every value is kept unless configured otherwise.
DEFAULT = CaptureConfig.of({name: SaveConfig(every=1) for name in ("losses", "metrics", "saved")})
