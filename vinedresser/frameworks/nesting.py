"""The parts of nested inputs and outputs of modules and layers, and nestings with other parts."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, UserDict, UserList, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["inside", "leaves", "mapped", "rebuilt"]

# Containers that can change and be built again.
_BUILT = (dict, list, UserDict, UserList)


def inside(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return pairs of key and item of a mapping, tuple, list or dataclass; () for all else.

    The key is the mapping's key, the index, or the field's name. Fields without a value are left
    out.
    """
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, (tuple, list, UserList)):
        return enumerate(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [entry.name for entry in dataclasses.fields(value)]
        return ((name, getattr(value, name)) for name in names if hasattr(value, name))
    return ()


def leaves(value: Any, name: str, is_leaf: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """Yield the tensors in a nesting, each with a unique name.

    Args:
        value: a tensor, or a nesting of tuples, lists, mappings and dataclasses; other values in it
            are skipped.
        name: name of the value itself; nested tensors have a suffix such as "[hidden]".
        is_leaf: returns whether a value is a tensor.
    """
    if is_leaf(value):
        yield name, value
        return
    for key, item in inside(value):
        yield from leaves(item, f"{name}[{key}]", is_leaf)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of a nesting with other values, in containers of the same types.

    Tuples of which nothing changes, such as a ``torch.Size``, are not copied.

    Args:
        value: a nesting of tuples, lists, mappings and dataclasses, or of subclasses of these.
        change: called with each value, outermost first; the parts of a value that it returns as
            it is are changed in turn.
    """
    changed = change(value)
    if changed is not value:
        return changed
    pairs = [(key, one, mapped(one, change)) for key, one in inside(value)]
    new = {key: other for key, one, other in pairs if other is not one}
    may_change = issubclass(type(value), _BUILT) or dataclasses.is_dataclass(type(value))
    return rebuilt(value, new) if new or may_change else value


def rebuilt(value: Any, new: Mapping[Any, Any]) -> Any:
    """Return a container of the same type with other parts.

    No code of a user's class runs, neither a constructor, which may take other arguments or check
    them, nor a method. The other attributes are those of the value.

    Args:
        value: a tuple, list, mapping or dataclass, or an instance of a subclass.
        new: the parts that change, by their keys of `inside`.

    Raises:
        TypeError: it is a mapping of a type that cannot be built.
    """
    kind = type(value)
    if issubclass(kind, tuple | list):
        return _rebuilt_sequence(value, [new.get(key, one) for key, one in enumerate(value)])
    if issubclass(kind, dict):
        pairs = {key: (value[key], one) for key, one in new.items()}
        return _with_attributes(_rebuilt_dict(value, new), value, pairs)
    if issubclass(kind, UserDict | UserList):
        # Such as the batches of tokenizers, which have attributes beside their data.
        data = value.data, rebuilt(value.data, new)
        return _with_attributes(object.__new__(kind), value, {"data": data})
    if dataclasses.is_dataclass(kind):
        made = _with_attributes(object.__new__(kind), value, {})
        for name, one in new.items():
            object.__setattr__(made, name, one)
        return made
    if kind is not MappingProxyType:
        raise TypeError(f"a {kind.__qualname__} cannot be built with other values")
    return MappingProxyType({key: new.get(key, one) for key, one in value.items()})


def _rebuilt_sequence(value: Any, parts: list[Any]) -> Any:
    kind = type(value)
    made: Any
    if issubclass(kind, list):
        made = list.__new__(kind)
        list.extend(made, parts)
        return _with_attributes(made, value, {})
    try:
        made = tuple.__new__(kind, parts)
    except TypeError:
        # Not a class of Python, such as `torch.return_types`: it has no code of a user.
        return kind(parts)
    pairs = zip(value, parts, strict=True)
    names = getattr(value, "_fields", ())
    return _with_attributes(made, value, dict(zip(names, pairs, strict=False)))


def _rebuilt_dict(value: dict[Any, Any], new: Mapping[Any, Any]) -> dict[Any, Any]:
    kind = OrderedDict if isinstance(value, OrderedDict) else dict
    made: dict[Any, Any] = dict.__new__(type(value))
    if isinstance(value, defaultdict):
        made.default_factory = value.default_factory  # type: ignore[attr-defined]
    for key, one in kind.items(value):
        kind.__setitem__(made, key, new.get(key, one))
    return made


def _with_attributes(made: Any, value: Any, parts: Mapping[str, tuple[Any, Any]]) -> Any:
    """Give a container the attributes of another one.

    Args:
        parts: old and new part by the name of an attribute that may be the part, too.
    """
    # The method of the base: a user's own serves pickle.
    state = object.__getstate__(value)
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    for name, one in (attributes or {}).items():
        old, new = parts.get(name, (None, None))
        made.__dict__[name] = new if name in parts and one is old else one
    for name, one in (slots or {}).items():
        object.__setattr__(made, name, one)
    return made
