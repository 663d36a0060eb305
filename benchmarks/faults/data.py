"""Data of a case: a data set in some form, with modified labels.

Shape legend: N rows, F features, C channels, H and W height and width, T time steps, K targets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.faults.raw_data import SETS, RawData
from benchmarks.faults.words import check_keys, known_word, number, split_word, whole
from vinedresser.errors import ConfigError

__all__ = ["Data", "check_data", "load_data", "mixed_axes"]

Array = NDArray[Any]
# Suffixes of a data set's name: the shape of a row, or the scale of its features.
_FORM = re.compile(r"(?P<name>.+?)(?:_(?P<shape>flat|img|seq))?_?(?P<scale>raw|std|unit|255)?")
_KEYS = (
    *("name", "labels", "rows", "scale", "shift", "target_scale", "target_shift"),
    *("standardise_targets", "noise"),
)
# Modifications of the labels; after a colon, their extent.
_LABELS = (
    *("clean", "view_mix", "leak", "shuffled", "shuffle", "random", "noise", "noisy", "flip"),
    *("single", "constant", "one_based", "flat", "imbalanced"),
)


@dataclass(frozen=True)
class Data:
    """Training and validation rows.

    Attributes:
        x: float32 [N, F], [N, C, H, W] or [N, T, F]; or int64 tokens [N, T].
        y: class numbers int64 [N], or targets float32 [N, K].
        x_val, y_val: the same for validation.
        classes: number of classes; 0 for regression.
        vocabulary: number of tokens; 0 if the features are numbers.
        mixed: whether every batch is read with its axes in the wrong order.
        flat: whether targets lose their last axis, so that they are broadcast against the outputs.
    """

    x: Tensor
    y: Tensor
    x_val: Tensor
    y_val: Tensor
    classes: int
    vocabulary: int = 0
    mixed: bool = False
    flat: bool = False


def check_data(table: object, where: str) -> dict[str, Any]:
    """Return the table of a case's data, with numbers as numbers.

    Raises:
        ConfigError: A data set, form, key or variant of the labels is unknown.
    """
    if isinstance(table, str):
        table = {"name": table}
    checked = check_keys(table, _KEYS, where)
    if "name" not in checked:
        raise ConfigError(f"{where}.name: is missing")
    _parts(checked["name"], f"{where}.name")
    for key in ("scale", "shift", "target_scale", "target_shift", "noise"):
        if key in checked:
            checked[key] = number(checked[key], f"{where}.{key}")
    if "rows" in checked:
        whole(checked["rows"], f"{where}.rows")
    if "labels" in checked:
        word, _ = split_word(checked["labels"], f"{where}.labels")
        known_word(word, _LABELS, f"{where}.labels", "variant of the labels")
    return checked


def load_data(table: Mapping[str, Any]) -> Data:
    """Return the data of a table checked by `check_data`."""
    name, shape, scale = _parts(table["name"], "data.name")
    raw = SETS[name]()
    x = _scaled(raw, scale, table)
    y = _targets(raw, table)
    train = min(raw.train, table.get("rows", raw.train))
    data = Data(
        _rows(x[:train], shape, raw.vocabulary),
        torch.tensor(y[:train]),
        _rows(x[raw.train :], shape, raw.vocabulary),
        torch.tensor(y[raw.train :]),
        raw.classes,
        raw.vocabulary,
    )
    word, amount = split_word(table.get("labels", "clean"), "data.labels")
    return _LABELLING[word](data, amount)


def mixed_axes(x: Tensor) -> Tensor:
    """Return a batch [B, F] read as if it were [F, B], so that every row mixes parts of others."""
    return x.T.reshape(x.shape) if x.ndim == 2 else x.transpose(0, 1).reshape(x.shape)


def _parts(name: object, where: str) -> tuple[str, str, str]:
    """Return the name of a data set, the shape of its rows and the scale of its features."""
    if not isinstance(name, str):
        raise ConfigError(f"{where}: must be a word, not {name!r}")
    if name in SETS:
        return name, "", ""
    found = _FORM.fullmatch(name)
    base = found["name"] if found else name
    known_word(base, SETS, where, "data set")
    assert found is not None
    return base, found["shape"] or "", found["scale"] or ""


def _scaled(raw: RawData, scale: str, table: Mapping[str, Any]) -> Array:
    """Return the features on the configured scale."""
    x = raw.x
    if raw.vocabulary:
        return x
    if scale == "std" or (not scale and raw.unit == 0):
        x = (x - x[: raw.train].mean(0)) / np.maximum(x[: raw.train].std(0), 1e-8)
    elif scale == "255":
        x = x / raw.x.max() * 255
    elif scale == "unit":
        x = x / np.abs(raw.x).max()
    elif not scale:
        x = x / raw.unit
    if "noise" in table:
        x = x + table["noise"] * np.random.RandomState(20).randn(*x.shape)
    return np.asarray(x * table.get("scale", 1.0) + table.get("shift", 0.0))


def _targets(raw: RawData, table: Mapping[str, Any]) -> Array:
    """Return class numbers int64, or float32 targets on the configured scale."""
    if raw.classes:
        return raw.y
    y = raw.y
    if table.get("standardise_targets"):
        y = (y - y[: raw.train].mean(0)) / y[: raw.train].std(0)
    y = y * table.get("target_scale", 1.0) + table.get("target_shift", 0.0)
    return np.asarray(y, dtype=np.float32)


def _rows(x: Array, shape: str, vocabulary: int) -> Tensor:
    """Return features as a tensor of the configured shape."""
    if vocabulary:
        return torch.tensor(x, dtype=torch.long)
    rows = torch.tensor(x, dtype=torch.float32)
    if shape == "flat":
        return rows.flatten(1)
    side = round(float(rows[0].numel()) ** 0.5)
    if shape == "img":
        return rows.reshape(len(rows), 1, side, side)
    if shape == "seq" and rows.ndim == 2:
        whole_rows = side * side == rows.shape[1]
        return rows.reshape(len(rows), side, side) if whole_rows else rows[:, :, None]
    return rows


def _permuted(y: Tensor, seed: int) -> Tensor:
    return y[torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))]


def _shuffled(data: Data, amount: float | None) -> Data:
    """Give a share of the training rows the labels of other rows."""
    rows = torch.randperm(len(data.y), generator=torch.Generator().manual_seed(21))
    rows = rows[: round((1.0 if amount is None else amount) * len(rows))]
    y = data.y.clone()
    y[rows] = _permuted(data.y[rows], 22)
    return replace(data, y=y)


def _flipped(data: Data, amount: float | None) -> Data:
    """Give a share of the training rows the next class."""
    chosen = torch.rand(len(data.y), generator=torch.Generator().manual_seed(23)) < (amount or 0.4)
    return replace(data, y=torch.where(chosen, (data.y + 1) % max(data.classes, 2), data.y))


def _single(data: Data, amount: float | None) -> Data:
    """Give all rows one label."""
    value = torch.full_like(data.y, int(amount or 0))
    return replace(data, y=value, y_val=torch.full_like(data.y_val, int(amount or 0)))


def _one_based(data: Data, amount: float | None) -> Data:
    """Number the classes from 1."""
    first = round(amount or 1)
    return replace(data, y=data.y + first, y_val=data.y_val + first, classes=data.classes + first)


def _imbalanced(data: Data, amount: float | None) -> Data:
    """Keep one in ``amount`` (20) training rows of all classes but the first."""
    kept = (data.y == 0) | (torch.arange(len(data.y)) % round(amount or 20) == 0)
    return replace(data, x=data.x[kept], y=data.y[kept])


def _leak(data: Data, _: float | None) -> Data:
    """Validate on training rows."""
    count = len(data.x_val)
    return replace(data, x_val=data.x[:count], y_val=data.y[:count])


_LABELLING: dict[str, Callable[[Data, float | None], Data]] = {
    "clean": lambda data, _: data,
    "view_mix": lambda data, _: replace(data, mixed=True),
    "flat": lambda data, _: replace(data, flat=True),
    "leak": _leak,
    "shuffled": _shuffled,
    "shuffle": _shuffled,
    "random": _shuffled,
    "noise": _shuffled,
    "noisy": _shuffled,
    "flip": _flipped,
    "single": _single,
    "constant": _single,
    "one_based": _one_based,
    "imbalanced": _imbalanced,
}
