"""A script prints, computes and draws the same under a check as without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vinedresser.preflight.launching import check_script

SCRIPT = """
import collections, dataclasses, sys, types, typing, warnings
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence

torch.manual_seed(0)


class Pair(typing.NamedTuple):
    first: object
    second: object = None


class Named(Pair):
    def __new__(cls, one):
        made = super().__new__(cls, one, 2)
        made.extra = one
        return made


class Items(list):
    def __init__(self, owner):
        super().__init__([owner])
        self.owner = owner

    def append(self, one):
        raise RuntimeError("not allowed")


class Triple(tuple):
    def __new__(cls, *items, note):
        made = super().__new__(cls, items)
        made.note = note
        return made


class Output(collections.OrderedDict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class Lazy(collections.abc.Mapping):
    def __init__(self, value):
        self.value = value

    def __getitem__(self, key):
        return self.value

    def __iter__(self):
        return iter(["only"])

    def __len__(self):
        return 1


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    value: object
    unset: object = dataclasses.field(init=False)


@dataclasses.dataclass(kw_only=True)
class Checked:
    value: object

    def __post_init__(self):
        assert isinstance(self.value, torch.Tensor)


class Slotted:
    __slots__ = ("value",)


class Marked(torch.Tensor):
    pass


def warned(x):
    warnings.warn("of a function", stacklevel=2)
    return x


def make(x):
    slotted = Slotted()
    slotted.value = x
    output = Output()
    output["logits"] = x
    counts = collections.defaultdict(list, {"x": x})
    return [
        (x, None, "text", {"x": [x]}), Pair(x), Named(x), Items(x), Triple(x, note="n"), output,
        counts, Frozen(x), Checked(value=x), slotted, collections.UserDict(x=x), Lazy(x),
        types.MappingProxyType({"x": x}), x.as_subclass(Marked), nn.Parameter(x.detach()),
        (one for one in [x]), x.max(1), pack_sequence([x]), {"shape": x.shape}, {1: x}, range(3),
    ]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, /, kind=None, *, module=None, self_=None):
        h = F.dropout(F.softmax(self.linear(x)), 0.1)
        torch.ones(2, 3, 4).T
        made = make(warned(h))
        return h if kind is None else made[kind]


def tensors(one):
    if isinstance(one, torch.Tensor):
        return [one]
    if isinstance(one, (Slotted, Frozen, Checked)):
        return [one.value]
    if isinstance(one, collections.abc.Mapping):
        return [found for value in one.values() for found in tensors(value)]
    if isinstance(one, (tuple, list, types.GeneratorType)):
        return [found for value in one for found in tensors(value)]
    return []


model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for kind in [None, *range(21)]:
    x = torch.randn(8, 4)
    given = make(x)
    optimizer.zero_grad()
    loss = model(x, module=given).view(x.shape).sum() * 0
    for seen in (model(x, kind, self_=given), given):
        print(type(seen).__name__, getattr(seen, "__dict__", None) and sorted(vars(seen)))
        for one in tensors(seen):
            # Functions of torch that take nestings of computed tensors.
            loss = loss + torch.stack([one.float(), one.float()]).square().mean()
            loss = loss + torch.cat(Items(one.float().reshape(-1))).mean()
    torch.broadcast_to(loss, torch.Size([2])).sum().backward()
    optimizer.step()
    print(loss.item(), torch.get_rng_state().sum().item())
    sys.stdout.flush()
print([one.sum().item() for one in model.parameters()])
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "filters",
    ["default", *(pytest.param(one, marks=pytest.mark.slow) for one in ("once", "always"))],
)
def test_a_script_with_odd_types_is_as_without_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filters: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONWARNINGS", filters)
    Path("train.py").write_text(SCRIPT, encoding="utf-8")

    plain = subprocess.run(
        [sys.executable, "train.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=120,
    )
    slow = ("overfit", "learning_rate", "scales")
    found = check_script(["train.py"], steps=100, seconds=60, timeout=120, skip=slow)

    assert "UserWarning: of a function" in plain.stdout
    assert found.output == plain.stdout[-len(found.output) :]
    assert (found.code, found.steps) == (0, 22)


@pytest.mark.thorough
def test_the_traceback_of_a_script_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = SCRIPT.replace("torch.ones(2, 3, 4).T", "x.shape[0] == 8 and F.softmax(x, 7)")
    Path("train.py").write_text(text, encoding="utf-8")

    plain = subprocess.run(
        [sys.executable, "train.py"], capture_output=True, text=True, check=False, timeout=120
    )
    found = check_script(["train.py"], steps=100, seconds=60, timeout=120)

    assert "Dimension out of range" in plain.stderr
    assert found.output == plain.stderr
    assert found.code == plain.returncode == 1
