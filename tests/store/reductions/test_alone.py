"""Fingerprints of tensors, and the similarity of units."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.capture.torch_.copies.reductions import take_later, take_now
from vinedresser.errors import ConfigError
from vinedresser.store.reductions import compute_statistics, parse_reduction, reduce_array

BITS, UNITS = frozenset({"fingerprint"}), frozenset({"unit_similarity"})


def crc32c(octets: bytes) -> int:
    """Return the CRC-32C bit by bit, as RFC 3720 defines it."""
    crc = 0xFFFFFFFF
    for octet in octets:
        crc ^= octet
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def similarity(rows: NDArray[np.float64]) -> float:
    """Return the median over rows of the greatest absolute cosine, pair by pair."""
    greatest = []
    for i, one in enumerate(rows):
        others = [abs(one @ other) / np.sqrt(one @ one) / np.sqrt(other @ other)
                  for j, other in enumerate(rows) if j != i]  # fmt: skip
        greatest.append(max(others))
    return float(np.median(greatest))


@pytest.mark.parametrize(
    "dtype", ["bool", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]
)
def test_a_fingerprint_is_that_of_the_bytes(dtype: str) -> None:
    tensor = torch.arange(-10.0, 14.0).reshape(4, 6).to(getattr(torch, dtype))
    octets = bytes(tensor.reshape(-1).view(torch.uint8).tolist())
    expected = {"fingerprint": float(crc32c(octets))}
    assert take_now(tensor, BITS, 0).scalars == expected
    transposed = tensor.T.contiguous().T
    assert take_now(transposed, BITS | {"l2"}, 0).scalars["fingerprint"] == expected["fingerprint"]
    statistics, later = take_later(transposed, BITS, 0)
    assert (later, statistics.settle()) == (None, {})
    assert statistics.scalars == expected
    if dtype != "bfloat16":
        assert reduce_array(tensor.numpy(), ["fingerprint"]) == expected
        swapped = tensor.numpy().astype(tensor.numpy().dtype.newbyteorder(">"))
        assert reduce_array(swapped, ["fingerprint"]) == expected


def test_a_single_bit_changes_the_fingerprint() -> None:
    array = np.ones(1000, np.float32)
    other = array.copy()
    other.view(np.uint32)[500] ^= 1
    marks = [
        reduce_array(one, ["fingerprint"])["fingerprint"] for one in (array, other, -0 * array)
    ]
    assert len(set(marks)) == 3
    assert reduce_array(np.zeros(0), ["fingerprint"])["fingerprint"] == 0.0
    zeros = np.zeros(2)
    assert reduce_array(zeros, ["fingerprint"]) != reduce_array(-zeros, ["fingerprint"])


@pytest.mark.parametrize("shape", [(2, 5), (10, 30), (7, 3, 2, 2), (64, 100)])
def test_similarity_is_that_of_all_pairs(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(1).normal(size=shape)
    expected = similarity(array.reshape(shape[0], -1))
    for statistics in (
        compute_statistics(array, UNITS, 0),
        compute_statistics(np.moveaxis(array, 0, -1), UNITS, array.ndim - 1),
        take_now(torch.from_numpy(array), UNITS, 0),
        take_later(torch.from_numpy(array), UNITS, 0)[0],
    ):
        assert statistics.late
        assert statistics.scalars == {}
        assert statistics.settle() == {}
        assert statistics.scalars["unit_similarity"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.ones((5, 4)), 1.0),
        (np.zeros((5, 4)), 1.0),
        (np.outer([1, -2, 3e200], [1.0, 2.0, 3.0]), 1.0),
        (np.eye(6), 0.0),
        (np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), 0.0),
        (np.ones((1, 4)), np.nan),
        (np.ones((5, 1)), np.nan),
        (np.array([[1.0, np.nan], [1.0, 2.0]]), np.nan),
    ],
)
def test_similarity_of_known_cases(array: NDArray[np.float64], expected: float) -> None:
    statistics = compute_statistics(array, UNITS, 0)
    statistics.settle()
    assert statistics.scalars["unit_similarity"] == pytest.approx(expected, nan_ok=True)


def test_many_units_are_sampled() -> None:
    rng = np.random.default_rng(2)
    wide = rng.normal(size=(1000, 4000)).astype(np.float32)
    statistics = compute_statistics(wide, UNITS, 0)
    ((_, sample),) = statistics.samples
    assert sample.shape == (64, 1024)
    statistics.settle()
    assert 0.05 < statistics.scalars["unit_similarity"] < 0.15
    assert similarity(wide[::16].astype(np.float64)[:64]) < 0.1
    alike = compute_statistics(wide[:4][np.arange(1000) % 4], UNITS, 0)
    alike.settle()
    assert alike.scalars["unit_similarity"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "word", ["channel_fingerprint", "abs_fingerprint", "channel_unit_similarity"]
)
def test_they_take_no_prefix(word: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown reduction '{word}'; did you mean"):
        SaveConfig(reductions=(word,))
    assert not parse_reduction("fingerprint").vector


def test_capture_in_a_training(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8))
    nn.init.constant_(model.get_parameter("1.weight"), 0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    save = SaveConfig(every=1, reductions=("fingerprint", "unit_similarity", "l2"))
    with Hook(tmp_path / "run", collections={"weights": save, "biases": save}) as hook:
        hook.watch(model, optimizer=optimizer)
        for step in range(3):
            if step == 2:
                model.get_parameter("0.weight").data[0, 0] += 1
            model(torch.randn(4, 6)).sum().backward()
            optimizer.step()
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    marks = run.tensor("weights/0.weight").reduction("fingerprint").values
    assert marks[0] == marks[1] != marks[2]
    octets = model.get_parameter("0.weight").detach().numpy().tobytes()
    assert marks[2] == crc32c(octets)
    alike = run.tensor("weights/1.weight").reduction("unit_similarity").values
    assert alike == pytest.approx([1.0] * 3)
    assert run.tensor("weights/0.weight").reduction("unit_similarity").values[0] < 0.999
    assert np.isnan(run.tensor("biases/0.bias").reduction("unit_similarity").values).all()
