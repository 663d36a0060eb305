"""Pruned models on disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from tests.property_tests import examples
from tests.pruning.networks import EXAMPLE, build
from vinedresser.pruning import PruningError, load, prune, save
from vinedresser.pruning.plan import plan_from_json

_SERVE = """
import sys, torch
from tests.pruning.networks import EXAMPLE, build
from vinedresser.pruning import load
model = load(sys.argv[1], lambda: build(seed=3)).eval()
with torch.no_grad():
    torch.save(model(EXAMPLE), sys.argv[2])
"""


def saved(folder: Path) -> torch.nn.Module:
    pruned = prune(prune(build(), EXAMPLE, 5), EXAMPLE, 3, criterion="l2")
    with torch.no_grad():
        for parameter in pruned.model.parameters():
            parameter.add_(0.01)  # as if it were fine-tuned
    save(pruned, folder)
    model: torch.nn.Module = pruned.model
    return model


@pytest.fixture(scope="module")
def model_on_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "pruned"
    saved(folder)
    return folder


def test_a_saved_model_is_loaded_bit_for_bit(tmp_path: Path) -> None:
    model = saved(tmp_path / "pruned").eval()
    loaded = load(tmp_path / "pruned", lambda: build(seed=3)).eval()
    with torch.no_grad():
        assert torch.equal(loaded(EXAMPLE), model(EXAMPLE))


@pytest.mark.thorough
def test_a_fresh_process_rebuilds_the_model_bit_for_bit(tmp_path: Path) -> None:
    model = saved(tmp_path / "pruned").eval()
    output = tmp_path / "output.pt"
    command = [sys.executable, "-c", _SERVE, str(tmp_path / "pruned"), str(output)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2])
    with torch.no_grad():
        assert torch.equal(torch.load(output, weights_only=True), model(EXAMPLE))


def test_the_files(tmp_path: Path) -> None:
    saved(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "plan-1.json",
        "plan-2.json",
        "proof.json",
        "weights.safetensors",
    ]
    assert json.loads((tmp_path / "plan-2.json").read_text())["criterion"] == "l2"
    assert json.loads((tmp_path / "proof.json").read_text())["count"] == 3


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    saved(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(PruningError, match="holds a pruned model already"):
        save(prune(build(), EXAMPLE, 2), tmp_path)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PruningError, match=r"holds no pruned model: plan-1\.json is missing"):
        load(tmp_path, build)


def test_a_plan_for_another_architecture_is_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    with pytest.raises(PruningError, match=r"plan-1\.json: the plan is for another architecture"):
        load(tmp_path, lambda: torch.nn.Conv2d(3, 4, 3))


@pytest.mark.thorough
@pytest.mark.parametrize("content", [b"", b"not safetensors", None])
def test_damaged_weights_are_refused(tmp_path: Path, content: bytes | None) -> None:
    saved(tmp_path)
    weights = tmp_path / "weights.safetensors"
    weights.unlink()
    if content is not None:
        weights.write_bytes(content)
    with pytest.raises(PruningError, match=r"weights\.safetensors: (no such|not a readable)"):
        load(tmp_path, build)


def _link(path: Path) -> None:
    aside = path.with_suffix(".aside")
    path.rename(aside)
    path.symlink_to(aside)


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _huge(path: Path) -> None:
    os.truncate(path, 1 << 40)  # sparse


@pytest.mark.parametrize("name", ["plan-1.json", "plan-2.json", "weights.safetensors"])
@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (_link, "a symbolic link, not a file"),
        (_fifo, "a FIFO, not a file"),
        (_folder, "a folder, not a file"),
        (_truncate, "not a "),
        (_huge, "not a "),
    ],
)
def test_anything_but_a_whole_regular_file_is_refused_by_name(
    tmp_path: Path, model_on_disk: Path, name: str, damage: Callable[[Path], None], why: str
) -> None:
    shutil.copytree(model_on_disk, tmp_path / "pruned")
    damage(tmp_path / "pruned" / name)
    with pytest.raises(PruningError, match=rf"pruned/{name}: ") as refused:
        load(tmp_path / "pruned", build)
    assert why in str(refused.value)


def test_weights_of_another_shape_are_refused_by_name(tmp_path: Path) -> None:
    model = saved(tmp_path)
    tensors = {name: one.clone() for name, one in model.state_dict().items()}
    tensors["head.bias"] = torch.zeros(6)
    save_file(tensors, tmp_path / "weights.safetensors")
    with pytest.raises(PruningError, match=r"head\.bias: has shape \[6\] in the file and \[5\]"):
        load(tmp_path, build)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "change",
    [
        {"attributes": {"forward": 3}},
        {"attributes": {"nowhere.groups": 3}},
        {"attributes": {"grouped.weight": 3}},
        {"attributes": {"grouped.groups": 0}},
        {"tensors": {"nowhere.weight": {"0": [1]}}},
        {"tensors": {"first.weight": {"7": [1]}}},
        {"tensors": {"first.weight": {"0": [99]}}},
    ],
)
def test_a_plan_that_was_tampered_with_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    saved(tmp_path)
    path = tmp_path / "plan-1.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(PruningError):
        load(tmp_path, build)


def flipped(path: Path, bit: int) -> bytes:
    """Flip a bit of a file, and return its contents before that."""
    before = path.read_bytes()
    place = bit // 8 % len(before)
    changed = bytes([before[place] ^ (1 << bit % 8)])
    path.write_bytes(before[:place] + changed + before[place + 1 :])
    return before


@pytest.mark.thorough
@settings(examples(40))
@given(bit=st.integers(0, 1 << 20), early=st.booleans())
@example(bit=8 * 3, early=True)
@pytest.mark.parametrize("name", ["plan-1.json", "plan-2.json", "weights.safetensors"])
def test_a_flipped_bit_is_refused_or_changes_nothing(
    model_on_disk: Path, name: str, bit: int, early: bool
) -> None:
    path = model_on_disk / name
    whole = load(model_on_disk, build).state_dict()
    # The header of a file of weights is short beside its data.
    before = flipped(path, bit % (8 * 600) if early else bit)
    refused, plan = "", before
    try:
        found = load(model_on_disk, build).state_dict()
        plan = path.read_bytes()
    except PruningError as error:
        refused = str(error)
    finally:
        path.write_bytes(before)
    if refused:
        assert name in refused
        return
    assert all(torch.equal(one, whole[key]) for key, one in found.items())
    if name != "weights.safetensors":
        assert plan_from_json(plan, source="") == plan_from_json(before, source="")


def test_every_bit_of_data_is_checked(model_on_disk: Path) -> None:
    path = model_on_disk / "weights.safetensors"
    for bit in (-1, -8 * 100 - 3, -8 * 1000):
        before = flipped(path, 8 * path.stat().st_size + bit)
        with pytest.raises(PruningError, match=r"weights\.safetensors: damaged: its checksum"):
            load(model_on_disk, build)
        path.write_bytes(before)


def test_files_without_checksums_are_read(tmp_path: Path) -> None:
    """As an earlier version wrote them."""
    model = saved(tmp_path)
    (tmp_path / "weights.safetensors").unlink()
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    for number in (1, 2):
        path = tmp_path / f"plan-{number}.json"
        document = json.loads(path.read_text())
        del document["checksum"]
        path.write_text(json.dumps(document))
    found = load(tmp_path, build).state_dict()
    assert all(torch.equal(one, found[name]) for name, one in model.state_dict().items())
