"""Nestings are rebuilt with other values in containers of the same types."""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, UserDict, UserList, defaultdict
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from vinedresser.frameworks.nesting import inside, mapped

X = torch.ones(2)


class Pair(NamedTuple):
    first: Any
    second: Any = None


class Strict(Pair):
    def __new__(cls, first: torch.Tensor) -> Strict:
        assert isinstance(first, torch.Tensor)
        made = super().__new__(cls, first, 2)
        made.note = first
        return made

    note: Any


class Triple(tuple[Any, ...]):
    def __new__(cls, *items: Any, note: str) -> Triple:
        made = super().__new__(cls, items)
        made.note = note
        return made

    note: str


class Items(list[Any]):
    def __init__(self, owner: Any) -> None:
        super().__init__([owner])
        self.owner = owner

    def append(self, _: Any) -> None:
        raise RuntimeError("not allowed")


class Output(OrderedDict[str, Any]):
    """As the outputs of transformers: the items are attributes, too."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class Encoded(UserDict[str, Any]):
    def __init__(self, data: dict[str, Any], encoding: str) -> None:
        super().__init__(data)
        self.encoding = encoding


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    value: Any
    unset: Any = dataclasses.field(init=False)


@dataclasses.dataclass(kw_only=True)
class Checked:
    value: Any

    def __post_init__(self) -> None:
        assert isinstance(self.value, torch.Tensor)
        self.twice = 2


class Lazy(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        return X

    def __iter__(self) -> Iterator[str]:
        return iter(["only"])

    def __len__(self) -> int:
        return 1


def output() -> Output:
    made = Output()
    made["logits"], made["size"] = X, 3
    return made


def replaced(value: Any) -> Any:
    return mapped(value, lambda one: "new" if isinstance(one, torch.Tensor) else one)


@pytest.mark.parametrize(
    "value",
    [
        (X, None, "text", {"x": [X]}),
        Pair(X),
        Strict(X),
        Triple(X, 1, note="n"),
        Items(X),
        output(),
        defaultdict[str, Any](list, {"x": X}),
        Frozen(X),
        Checked(value=X),
        Encoded({"x": X}, "utf-8"),
        UserList([X, 1]),
        MappingProxyType({"x": X}),
        torch.ones(2, 2).max(1),
        pack_sequence([X]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_values_are_in_containers_of_the_same_types(value: Any) -> None:
    found = replaced(value)

    assert type(found) is type(value)
    before, after = dict(inside(value)), dict(inside(found))
    assert list(before) == list(after)
    for key, one in before.items():
        if isinstance(one, torch.Tensor):
            assert after[key] == "new"
        elif not isinstance(one, dict | list):
            assert after[key] is one
    # The value itself stays as it is.
    assert any(isinstance(one, torch.Tensor) for one in dict(inside(value)).values())


def test_attributes_are_kept() -> None:
    assert replaced(Triple(X, note="n")).note == "n"
    assert replaced(Encoded({"x": X}, "utf-8")).encoding == "utf-8"
    assert replaced(Checked(value=X)).twice == 2
    assert replaced(defaultdict[str, Any](list, {"x": X}))["other"] == []
    made = replaced(output())
    assert (made.logits, made.size, list(made)) == ("new", 3, ["logits", "size"])
    named: Any = replaced(Strict(X))
    assert (named.first, named.second) == ("new", 2)
    packed: PackedSequence = replaced(pack_sequence([X]))
    assert packed.data == "new"


def test_what_cannot_be_built_or_need_not_is_the_same() -> None:
    generator = (one for one in [X])
    size = X.shape
    found = replaced([generator, size, None, "text", Counter("a"), object])
    assert found[0] is generator
    assert found[1] is size
    assert found[4] == Counter("a")
    assert next(generator) is X
    with pytest.raises(TypeError, match="a Lazy cannot be built with other values"):
        replaced(Lazy())


def test_a_copy_does_not_change_with_the_value() -> None:
    given = {"x": [1, 2]}
    found = replaced(given)
    given["x"].append(3)
    assert found == {"x": [1, 2]}
