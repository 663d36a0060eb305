"""Nested Python values as JSON, with their tensors beside it.

Nothing that is read makes Python import, call or build anything but the types listed here:

    null, true, 1, "text"       None, bool, int, str
    {"float": "0x1.8p+0"}       a float, exact; also "nan", "inf" and "-inf"
    {"list": […]}, {"tuple": […]}, {"set": […]}
    {"dict": [[key, value], …]}
    {"fields": [[name, value], …], "type": name}    a named tuple or dataclass, read as `Fields`
    {"tensor": name, …}         a tensor or array, in the file of tensors
    {"constant": [kind, text]}  a dtype, device or size of the framework, or `Computed`
    {"left_out": why}           a value that cannot be stored, read as `LeftOut`
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple, Protocol

from vinedresser.errors import CorruptData
from vinedresser.masking import masked_value
from vinedresser.objects.base import Buffer
from vinedresser.store.json_values import DAMAGE, shown

__all__ = [
    "Codec",
    "Computed",
    "Fields",
    "HostArray",
    "LeftOut",
    "Packed",
    "Packer",
    "array_digest",
    "unpack",
]

# Deeper values are left out: no batch is as deep, and JSON readers have a limit.
_DEEPEST = 40
# The kind of constant that is a `Computed`.
_COMPUTED = "computed"


class HostArray(NamedTuple):
    """A dense tensor in host memory, row by row.

    Attributes:
        dtype: safetensors' name of the element type.
        data: the elements; C-contiguous bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    data: Buffer


def array_digest(array: HostArray) -> str:
    """Return the SHA-256 of an array's dtype, shape and elements, 64 hexadecimal digits."""
    found = hashlib.sha256(f"{array.dtype}{list(array.shape)}".encode())
    found.update(array.data)
    return found.hexdigest()


@dataclass(frozen=True)
class LeftOut:
    """The place of a value that could not be stored.

    Attributes:
        why: the reason.
    """

    why: str


@dataclass(frozen=True)
class Computed:
    """The place of a tensor that the model computed, which a replay computes again.

    Attributes:
        text: its dtype and shape, such as "float32 [64, 10]".
    """

    text: str


class Fields(tuple[Any, ...]):
    """The values of a named tuple or a dataclass, by position and as attributes."""

    _fields: tuple[str, ...]

    def __new__(cls, values: Mapping[str, Any]) -> Fields:  # noqa: D102 (see the class)
        self = super().__new__(cls, values.values())
        # Of the instance, so that a field may be called "count" or "index".
        vars(self).update(values)
        self._fields = tuple(values)
        return self

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(vars(self).get("_fields", ()))
        raise AttributeError(f"the recorded value has no {name}; it has {known}")


# A tensor and its properties, kind and text of a constant, a value that cannot be stored, or a
# value of another type.
Packed = tuple[HostArray, dict[str, Any]] | tuple[str, str] | LeftOut | None


class Codec(Protocol):
    """What a framework adds to the types that can be stored."""

    def pack(self, value: Any) -> Packed:
        """Return a tensor and its properties, kind and text of a constant, or None for others."""

    def unpack(self, array: HostArray, properties: Mapping[str, Any]) -> Any:
        """Return a tensor; raise ValueError or TypeError if the properties do not fit."""

    def constant(self, kind: str, text: str) -> Any:
        """Return a constant; raise ValueError if there is none."""

    def named(self, kind: str, values: Fields) -> Any:
        """Return a value of a type of the framework, or the fields as they are."""


class Packer:
    """Turns values into trees, and collects their tensors.

    Args:
        codec: adds the framework's types.

    Attributes:
        tensors: the tensors by name.
        left_out: why a value is missing, by its path.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.tensors: dict[str, HostArray] = {}
        self.left_out: dict[str, str] = {}
        # By identity the value and its tree, so that a tensor is stored once.
        self._leaves: dict[int, tuple[Any, Any]] = {}

    def pack(self, value: Any, path: str, depth: int = 0) -> Any:
        """Return the tree of a value.

        Args:
            path: its path in the contents; names its tensors.
            depth: number of values around it.
        """
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return {"float": value.hex()}
        if isinstance(value, Computed):
            return {"constant": [_COMPUTED, value.text]}
        packed = LeftOut("it is nested too deeply") if depth > _DEEPEST else self._codec.pack(value)
        if isinstance(packed, LeftOut):
            self.left_out[path] = packed.why
            return {"left_out": packed.why}
        if packed is None:
            return self._nested(value, path, depth + 1)
        return self._leaf(value, packed, path)

    def _leaf(self, value: Any, packed: tuple[Any, Any], path: str) -> Any:
        first, second = packed
        if isinstance(first, str):
            return {"constant": [first, second]}
        if id(value) not in self._leaves:
            self.tensors[path] = first
            self._leaves[id(value)] = value, {"tensor": path, **second}
        return self._leaves[id(value)][1]

    def _nested(self, value: Any, path: str, depth: int) -> Any:
        named = _named(value)
        if named is not None:
            items = [[key, self._item(key, one, path, depth)] for key, one in named.items()]
            return {"fields": items, "type": type(value).__name__}
        if isinstance(value, Mapping):
            pairs = [
                [self.pack(key, f"{path}.key", depth), self._item(key, one, path, depth)]
                for key, one in value.items()
            ]
            return {"dict": pairs}
        for kind, types in (("tuple", tuple), ("list", list), ("set", (set, frozenset))):
            if isinstance(value, types):
                parts = [self._item(place, one, path, depth) for place, one in enumerate(value)]
                return {kind: parts}
        for plain in (int, float, str):
            # A subclass, such as an enumeration or a numpy number.
            if isinstance(value, plain):
                return self.pack(plain(value), path, depth)
        found = type(value)
        why = f"a {found.__module__}.{found.__qualname__} cannot be stored"
        self.left_out[path] = why
        return {"left_out": why}

    def _item(self, key: object, value: Any, path: str, depth: int) -> Any:
        plain = isinstance(value, str) and isinstance(key, str)
        return self.pack(masked_value(str(key), value) if plain else value, f"{path}.{key}", depth)


def unpack(tree: Any, tensors: Callable[[str], HostArray], codec: Codec) -> Any:
    """Return the value of a tree.

    Args:
        tree: result of `Packer.pack`, from any source.
        tensors: returns the tensor with a name; raises KeyError.
        codec: builds the framework's types.

    Raises:
        CorruptData: it is not such a tree.
    """
    try:
        return _unpacked(tree, tensors, codec, 0)
    except DAMAGE as error:
        if isinstance(error, CorruptData):
            raise
        raise CorruptData(f"not a valid value: {error}") from error


def _unpacked(tree: Any, tensors: Callable[[str], HostArray], codec: Codec, depth: int) -> Any:
    if tree is None or type(tree) in (bool, int, str):
        return tree
    if not isinstance(tree, dict) or not tree or depth > 2 * _DEEPEST:
        raise CorruptData(f"{shown(tree)} is not a stored value")
    kind, content = next(iter(tree.items()))
    if kind == "tensor":
        properties = {key: one for key, one in tree.items() if key != "tensor"}
        return codec.unpack(tensors(content), properties)
    if kind == "constant":
        word, text = content
        return Computed(str(text)) if word == _COMPUTED else codec.constant(word, text)
    if kind in _SIMPLE:
        return _SIMPLE[kind](content)
    if not isinstance(content, list) or kind not in ("dict", "fields", *_SEQUENCES):
        raise CorruptData(f"{shown(tree)} is not a stored value")

    def inner(one: Any) -> Any:
        return _unpacked(one, tensors, codec, depth + 1)

    if kind in _SEQUENCES:
        return _SEQUENCES[kind](map(inner, content))
    pairs = {inner(key): inner(value) for key, value in content}
    return codec.named(str(tree.get("type")), Fields(pairs)) if kind == "fields" else pairs


def _float(text: str) -> float:
    found = float.fromhex(text)
    if math.isinf(found) and "inf" not in text:
        raise ValueError(f"{shown(text)} is not a float")
    return found


_SIMPLE: dict[str, Callable[[Any], Any]] = {
    "float": _float,
    "left_out": lambda why: LeftOut(str(why)),
}
_SEQUENCES: dict[str, Callable[[Any], Any]] = {"list": list, "tuple": tuple, "set": set}


def _named(value: Any) -> dict[str, Any] | None:
    """Return the fields of a named tuple or a dataclass, or None."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=False))
    if is_dataclass(value) and not isinstance(value, type) and not isinstance(value, Mapping):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return None
