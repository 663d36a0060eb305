"""What a run captures: the collections in force."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Self

from vinedresser.capture.config.timetable import Timetable
from vinedresser.errors import ConfigError
from vinedresser.store.collections.collection import Collection, check_collection_name
from vinedresser.store.collections.modules import ModuleInfo
from vinedresser.store.collections.schedule import Predicate, SaveConfig

__all__ = ["DEFAULT", "NOTHING", "NOTHING_DUE", "TIMES", "Ask", "CaptureConfig", "Due"]

# Durations that a hook can measure, in seconds.
TIMES = ("timing/step", "timing/wait", "timing/evaluation")

# Collections of numbers that come one by one, and of what is handed over by hand.
_PLAIN = frozenset({"losses", "metrics", "saved", "timing"})


class Ask(NamedTuple):
    """What is to be kept of one tensor at one step.

    Attributes:
        tensor: the tensor itself.
        reductions: names of statistics.
        wanted: some due collection holds it; a scalar is kept if and only if this is true.
        rows: of the tensor itself, how many rows at the most; None: all.
    """

    tensor: bool
    reductions: frozenset[str]
    wanted: bool = True
    rows: int | None = None

    def __bool__(self) -> bool:
        return self.wanted


NOTHING = Ask(False, frozenset(), False)


class Due:
    """The collections that are due together at some steps, and what they ask of each tensor.

    Args:
        parts: collections with those of their save configs that are due.

    Attributes:
        parts: these.
        plain: there are some, and none for which a model has to be looked at.
    """

    def __init__(self, parts: tuple[tuple[Collection, SaveConfig], ...]) -> None:
        self.parts = parts
        self.plain = bool(parts) and all(one.name in _PLAIN for one, _ in parts)
        self._asks: dict[str, Ask] = {}
        self._kinds: dict[str, bool] = {}
        self._places: dict[str, frozenset[str] | None] = {}

    def __bool__(self) -> bool:
        return bool(self.parts)

    def ask(self, name: str) -> Ask:
        """Return what is asked of the tensor of this full name."""
        found = self._asks.get(name)
        if found is None:
            saves = [save for collection, save in self.parts if collection.holds(name)]
            reductions = frozenset(word for save in saves for word in save.reductions)
            rows = [save.rows for save in saves if save.wants_tensor]
            found = Ask(bool(rows), reductions, bool(saves), _most(rows))
            found = self._asks[name] = found if saves else NOTHING
        return found

    def reaches(self, kind: str) -> bool:
        """Say whether any tensor whose name begins with ``kind`` and a slash may be asked for."""
        if kind not in self._kinds:
            self._kinds[kind] = any(collection.reaches(kind) for collection, _ in self.parts)
        return self._kinds[kind]

    def only_at(self, kind: str) -> frozenset[str] | None:
        """Return the paths of the modules whose tensors of a kind may be asked for; None: any."""
        if kind not in self._places:
            found = [collection.only_at(kind) for collection, _ in self.parts]
            named = [paths for paths in found if paths is not None]
            self._places[kind] = frozenset().union(*named) if len(named) == len(found) else None
        return self._places[kind]

    @cached_property
    def times(self) -> frozenset[str]:
        """Those of `TIMES` that are asked for."""
        return frozenset(filter(self.ask, TIMES))

    def collections(self) -> dict[str, Collection]:
        """Return the due collections by name."""
        return {collection.name: collection for collection, _ in self.parts}


class CaptureConfig:
    """The collections of a run.

    Attributes:
        collections: by name.

    Args:
        collections: by name; a nameless one takes its key as its name.

    Raises:
        ConfigError: a collection is unknown and has no regex, or has another name than its key.
    """

    def __init__(self, collections: Mapping[str, Collection] | None = None) -> None:
        self.collections: dict[str, Collection] = {}
        for name, collection in sorted((collections or {}).items()):
            if collection.name not in ("", name):
                raise ConfigError(f"{name}: given a collection of another name, {collection.name}")
            named = replace(collection, name=name)
            check_collection_name(named)
            self.collections[name] = named
        self._parts = [
            (collection, save)
            for collection in self.collections.values()
            for save in collection.saves
        ]
        # Most have a schedule in common: by it, one of them and the numbers of all.
        schedules: dict[Any, tuple[SaveConfig, list[int]]] = {}
        for number, (_, save) in enumerate(self._parts):
            schedules.setdefault(save.schedule, (save, []))[1].append(number)
        self._schedules = list(schedules.values())
        self._due: dict[tuple[int, ...], Due] = {}
        self._train = Timetable([save for save, _ in self._schedules], self._due_in_training)

    @classmethod
    def of(
        cls, given: Mapping[str, SaveConfig | tuple[SaveConfig, ...] | Collection] | None
    ) -> Self:
        """Build it from what a user writes: by collection name a save config or a collection.

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
        """Return the config that captures what either of the two captures.

        Raises:
            ConfigError: both have a collection of one name with different regexes.
        """
        both = dict(self.collections)
        for name, collection in other.collections.items():
            both[name] = both[name].merged(collection) if name in both else collection
        return CaptureConfig(both)

    def changed(self, other: CaptureConfig) -> CaptureConfig:
        """Return it with the collections of another config in the place of its own.

        A collection that is here already keeps what tensors it holds where the other says nothing
        of that.
        """
        both = dict(self.collections)
        for name, collection in other.collections.items():
            known = both.get(name)
            keep = known is not None and not collection.selects
            both[name] = replace(known, save=collection.save) if known and keep else collection
        return CaptureConfig(both)

    def resolved(
        self, modules: Mapping[str, ModuleInfo], path_of: Callable[[Any], str | None]
    ) -> CaptureConfig:
        """Return it with the modules of its collections known by their paths.

        Args:
            modules: what there is, by path.
            path_of: returns the path of a module object; None for one that it does not know.
        """
        found = {one.name: one.resolved(modules, path_of) for one in self.collections.values()}
        return CaptureConfig(found)

    def guarded(self, guard: Callable[[str, Predicate], Predicate]) -> CaptureConfig:
        """Return it with predicates that cannot harm the training; see `SaveConfig.guarded`."""
        return CaptureConfig(
            {
                one.name: replace(one, save=tuple(save.guarded(guard) for save in one.saves))
                for one in self.collections.values()
            }
        )

    def unresolved(self) -> Iterable[tuple[str, Any]]:
        """Yield collection and object of each module whose path is not known."""
        for collection in self.collections.values():
            for module in collection.modules:
                if not isinstance(module, str):
                    yield collection.name, module

    def with_defaults(self) -> CaptureConfig:
        """Return it with those collections of `DEFAULT` added that it says nothing about."""
        return CaptureConfig({**DEFAULT.collections, **self.collections})

    def due(self, step: int, mode: str) -> Due:
        """Return the collections that are due; the same object for the same set of them."""
        return self._train.at(step) if mode == "train" else self._work_out(step, mode)

    def _due_in_training(self, step: int) -> Due:
        return self._work_out(step, "train")

    def _work_out(self, step: int, mode: str) -> Due:
        key = tuple(
            [place for place, (save, _) in enumerate(self._schedules) if save.due(step, mode)]
        )
        found = self._due.get(key)
        if found is None:
            numbers = sorted(number for place in key for number in self._schedules[place][1])
            found = self._due[key] = Due(tuple(self._parts[number] for number in numbers))
        return found

    def holds(self, name: str) -> bool:
        """Say whether any collection holds the tensor of this full name."""
        return any(collection.holds(name) for collection in self.collections.values())

    def asks(self, name: str, step: int, mode: str) -> Ask:
        """Return what is asked of one tensor at one step."""
        return self.due(step, mode).ask(name)

    def to_json(self) -> dict[str, Any]:
        """Return the collections as plain JSON types, by name."""
        return {name: collection.to_json() for name, collection in self.collections.items()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Build it from `to_json`'s form, or from the ``[capture.<collection>]`` tables of TOML.

        Raises:
            ConfigError: something is not right; the message begins with the collection and key.
        """
        return cls({name: Collection.from_json(name, table) for name, table in document.items()})

    def digest(self) -> str:
        """Return the SHA-256 of its canonical JSON, 64 hexadecimal digits."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CaptureConfig) and self.collections == other.collections

    def __hash__(self) -> int:
        return hash(self.digest())

    def __repr__(self) -> str:
        return f"CaptureConfig({self.collections!r})"


def _most(rows: list[int | None]) -> int | None:
    """Return how many rows are enough for all who ask; None: all."""
    given = [most for most in rows if most is not None]
    return max(given) if given and len(given) == len(rows) else None


NOTHING_DUE = Due(())

# What `hook.save` is given is given on purpose, so it is kept unless the user says how often.
DEFAULT = CaptureConfig.of({name: SaveConfig(every=1) for name in ("losses", "metrics", "saved")})
