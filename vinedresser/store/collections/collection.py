"""Named sets of tensors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.store.collections.modules import ModuleInfo, activation_of, module_of
from vinedresser.store.collections.schedule import SaveConfig

__all__ = [
    "ACCURACY",
    "BUILT_IN",
    "FIRST_LABEL",
    "KINDS",
    "TERMS",
    "TRAINED_ROWS",
    "Collection",
    "check_collection_name",
]

# The kinds of tensors; each is a collection of the tensors whose names begin with it and a slash.
KINDS = (
    "losses",
    "metrics",
    "weights",
    "biases",
    "gradients",
    "updates",
    "inputs",
    "outputs",
    "buffers",
    "optimizer_state",
    "attention",
    "input_taylor",
    "weight_taylor",
    "loss_terms",
    "labels",
    "predictions",
    "feature_importance",
    "trees",
    "shap",
    "saved",
    "timing",
    "state",
    "ranks",
)
# Collections of tensors with other prefixes: the outputs of activation functions, and the inputs
# and outputs of a model as a whole.
_ACTIVATIONS = "activations"
_OF_MODELS = {"model_inputs": "inputs", "model_outputs": "outputs"}
# Names of the accuracies that the hook computes of labels and predictions begin with it; the name
# of the loss follows. They are no metrics: rules judge those that a script reports itself.
ACCURACY = "saved/accuracy/"
# Shares of the labels of an evaluation that equal its first one; the name of the loss follows.
FIRST_LABEL = "state/first_label/"
# Shares of the rows of an evaluation set that are training rows; the name of the set follows.
TRAINED_ROWS = "state/trained_rows/"
# Terms of the loss that a script names.
TERMS = "saved/terms/"
BUILT_IN = (*KINDS, _ACTIVATIONS, *_OF_MODELS)
# The path under which custom loops report tensors with `hook.step`.
_REPORTED = "batch"


@dataclass(frozen=True)
class Collection:
    """A named set of tensors and when they are saved.

    A tensor is a member if its name begins with the collection's name and a slash, if the regex
    matches its name, or if it belongs to one of the modules or to a module of one of the types. A
    tensor may be in several collections. A custom collection needs a regex, modules or types.

    Attributes:
        name: name of the collection; "" if it is given elsewhere, such as by a dict key.
        regex: matches (`re.search`) the full names of its tensors, such as ``outputs/relu1``.
        save: when and what to save; several are combined. Kept sorted and without duplicates.
        modules: paths of modules or layers, such as "encoder.conv1", or the objects themselves;
            excludes their submodules.
        types: class names of modules or layers, such as "Conv2d", or the classes themselves.
        kinds: kinds of tensors of these modules: "inputs", "outputs", "weights", ...; (): all.

    Raises:
        ConfigError: the regex is invalid, a built-in collection has a regex, modules or types, or a
            kind does not exist.
    """

    name: str = ""
    regex: str | None = None
    save: SaveConfig | tuple[SaveConfig, ...] = SaveConfig()  # noqa: RUF009 (frozen)
    modules: tuple[Any, ...] = ()
    types: tuple[Any, ...] = ()
    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "save", _ordered(self.name, self.save))
        for key in ("modules", "types", "kinds"):
            object.__setattr__(self, key, self._given(key))
        object.__setattr__(self, "types", tuple(map(_class_name, self.types)))
        for kind in self.kinds:
            if kind not in KINDS:
                hint = did_you_mean(str(kind), KINDS) or f"; kinds are {', '.join(KINDS)}"
                raise ConfigError(f"{self.name or 'collection'}: unknown kind {kind!r}{hint}")
        if self.name in KINDS and (self.regex or self.modules or self.types):
            raise ConfigError(
                f"{self.name}: a built-in collection takes no regex, modules or types; use another "
                "name for a custom collection"
            )
        if self.regex is None:
            return
        try:
            re.compile(self.regex)
        except (re.error, TypeError) as error:
            raise ConfigError(
                f"{self.name or 'collection'}: invalid regex {self.regex!r}: {error}"
            ) from error

    def _given(self, key: str) -> tuple[Any, ...]:
        value = getattr(self, key)
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{self.name or 'collection'}: {key} = {value!r}: must be a list")
        return tuple(value)

    @property
    def saves(self) -> tuple[SaveConfig, ...]:
        """Its save configs."""
        return self.save if isinstance(self.save, tuple) else (self.save,)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return None if self.regex is None else re.compile(self.regex)

    @cached_property
    def _paths(self) -> frozenset[str]:
        return frozenset(path for path in self.modules if isinstance(path, str))

    @property
    def selects(self) -> bool:
        """Whether it selects its tensors by regex, modules or types."""
        return bool(self.regex is not None or self.modules or self.types)

    def holds(self, name: str) -> bool:
        """Return whether the tensor with this full name is a member."""
        if name.startswith(f"{self.name}/"):
            return True
        if self._pattern is not None and self._pattern.search(name) is not None:
            return True
        return self._holds_of_its_own(name) or self._of_its_modules(name)

    def _holds_of_its_own(self, name: str) -> bool:
        """Return whether a built-in collection with other prefixes has this tensor."""
        if self.name == _ACTIVATIONS:
            return name.startswith("outputs/") and bool(activation_of(name, {}))
        kind = _OF_MODELS.get(self.name)
        return name.startswith(f"{kind}/") and module_of(name) == _REPORTED

    def _of_its_modules(self, name: str) -> bool:
        if not self._paths or (self.kinds and name.partition("/")[0] not in self.kinds):
            return False
        return module_of(name) in self._paths

    def reaches(self, kind: str) -> bool:
        """Return whether it may have tensors whose names begin with ``kind`` and a slash."""
        if self.name == kind:
            return True
        if self.name == _ACTIVATIONS:
            return kind == "outputs"
        if self.name in _OF_MODELS:
            return kind == _OF_MODELS[self.name]
        if (self.modules or self.types) and (not self.kinds or kind in self.kinds):
            return True
        if self.regex is None:
            return False
        first, slash, _ = self.regex.removeprefix("^").partition("/")
        return not (slash and first in KINDS) or first == kind

    def only_at(self, kind: str) -> frozenset[str] | None:
        """Return the paths of the modules whose tensors of a kind it may have; None: any."""
        if not self.reaches(kind):
            return frozenset()
        if self.regex is not None or self.name in (*KINDS, _ACTIVATIONS):
            return None
        return self._paths

    def resolved(
        self, modules: Mapping[str, ModuleInfo], path_of: Callable[[Any], str | None]
    ) -> Collection:
        """Return the collection with module objects and types replaced by paths.

        Args:
            path_of: returns the path of a module object; None if unknown.
        """
        if self.name == _ACTIVATIONS:
            found = [path for path, info in modules.items() if info.activation]
            paths = dict.fromkeys([*self.modules, *found])
            return replace(self, modules=tuple(paths), kinds=("outputs",))
        if self.name in _OF_MODELS:
            roots = [path for path, info in modules.items() if info.root]
            paths = dict.fromkeys([*self.modules, *roots])
            return replace(self, modules=tuple(paths), kinds=(_OF_MODELS[self.name],))
        if not (self.modules or self.types):
            return self
        of_types = [path for path, info in modules.items() if info.type in self.types]
        paths = dict.fromkeys([*(_path(module, path_of) for module in self.modules), *of_types])
        return replace(self, modules=tuple(paths))

    def merged(self, other: Collection) -> Collection:
        """Return the union of two collections with the same name.

        Raises:
            ConfigError: their regexes, modules, types or kinds differ.
        """
        if self.regex != other.regex:
            raise ConfigError(
                f"{self.name}: defined with two regexes, {self.regex!r} and {other.regex!r}"
            )
        if self.name in BUILT_IN:
            modules = tuple(dict.fromkeys([*self.modules, *other.modules]))
            return replace(self, save=self.saves + other.saves, modules=modules)
        for key in ("modules", "types", "kinds"):
            if getattr(self, key) != getattr(other, key):
                raise ConfigError(
                    f"{self.name}: defined with different {key}, {getattr(self, key)!r} and "
                    f"{getattr(other, key)!r}"
                )
        return replace(self, save=self.saves + other.saves)

    def to_json(self) -> dict[str, Any]:
        """Return the collection as plain JSON types, without module objects whose path is unknown.

        See `from_json`.
        """
        document: dict[str, Any] = {
            "regex": self.regex,
            "save": [save.to_json() for save in self.saves],
        }
        for key in ("modules", "types", "kinds"):
            if words := [one for one in getattr(self, key) if isinstance(one, str)]:
                document[key] = words
        return document

    @classmethod
    def from_json(cls, name: str, document: Mapping[str, Any]) -> Self:
        """Create a collection from a table.

        Args:
            document: ``regex``, ``modules``, ``types``, ``kinds``, and either ``save``, a list of
                tables with `SaveConfig`'s attributes, or these attributes themselves.

        Raises:
            ConfigError: an unknown key or an invalid value; the message names it.
        """
        if not isinstance(document, Mapping):
            raise ConfigError(f"{name} = {document!r}: must be a table")
        selecting = {key: document[key] for key in _SELECTING if key in document}
        rest = {key: value for key, value in document.items() if key not in _SELECTING}
        tables = rest.pop("save") if "save" in rest else [rest]
        if "save" in document and rest:
            raise ConfigError(f"{name}.{next(iter(rest))}: conflicts with save; put it inside save")
        if not isinstance(tables, list) or not all(isinstance(one, Mapping) for one in tables):
            raise ConfigError(f"{name}.save = {tables!r}: must be a list of tables")
        try:
            saves = tuple(SaveConfig.from_json(table) for table in tables)
        except ConfigError as error:
            raise ConfigError(f"{name}.{error}") from error
        return cls(name, save=saves, **selecting)


def check_collection_name(collection: Collection) -> None:
    """Check that a collection can have members.

    Raises:
        ConfigError: its name is invalid, or it is not built in and has no regex, modules or types.
    """
    name = collection.name
    if not name or "/" in name:
        raise ConfigError(f"invalid collection name {name!r}: it must be a word without '/'")
    if name not in BUILT_IN and not collection.selects:
        hint = did_you_mean(name, BUILT_IN) or f"; built-in collections: {', '.join(BUILT_IN)}"
        raise ConfigError(
            f"{name}: no such collection, and no regex, modules or types to define it{hint}"
        )


_SELECTING = ("regex", "modules", "types", "kinds")


def _class_name(given: Any) -> str:
    """Return the name of a class, given by name or as an object."""
    name = given.__name__ if isinstance(given, type) else given
    if not isinstance(name, str):
        raise ConfigError(f"types: {given!r} is neither a class nor the name of one")
    return name


def _path(module: Any, path_of: Callable[[Any], str | None]) -> Any:
    """Return the path of a module, or the object itself if its path is unknown."""
    if isinstance(module, str):
        return module
    path = path_of(module)
    return module if path is None else path


def _ordered(name: str, save: object) -> tuple[SaveConfig, ...]:
    """Return save configs without duplicates, in a canonical order."""
    saves = save if isinstance(save, (tuple, list)) else (save,)
    for one in saves:
        if not isinstance(one, SaveConfig):
            raise ConfigError(f"{name or 'collection'}: save = {one!r} is not a SaveConfig")
    return tuple(sorted(set(saves), key=lambda one: json.dumps(one.to_json())))
