"""Which checkpoint a run resumes: the last one of which all parts are there, and whole."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from vinedresser.store.reading.reader import Run
from vinedresser.store.records import LaunchRecord, write_record
from vinedresser.tasks.places.checkpoints import (
    SavedCheckpoint,
    fetch_checkpoint,
    last_checkpoint,
)
from vinedresser.testing.runs import make_run, step_record

WEIGHTS = np.arange(60_000, dtype=np.float32)


def archive() -> bytes:
    content = io.BytesIO()
    np.savez(content, weights=WEIGHTS)
    return content.getvalue()


def tensors() -> bytes:
    return safetensors.numpy.save({"weights": WEIGHTS})


def run_of(folder: Path, ranks: int, files: dict[str, bytes]) -> Run:
    """Make a run of 30 steps with files in its ``checkpoints/``, and a sound one of step 10."""
    records = [[step_record(step) for step in range(30)] for _ in range(ranks)]
    run = make_run(folder / "run", *records, name="run")
    for name, content in {"step-10.npz": archive(), **files}.items():
        path = folder / "run/checkpoints" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return run


def resumed(run: Run, ranks: int | None = None) -> tuple[str, list[str]]:
    """Return the key of the checkpoint that is resumed, and what is said about others."""
    said: list[str] = []
    found = last_checkpoint(run, ranks=ranks, report=said.append)
    assert found is not None
    prefix = "run: checkpoints/step-20"
    assert all(one.startswith(prefix) for one in said)
    return found.key, [one.partition(" is not used: ")[2] for one in said]


@pytest.mark.parametrize(
    "name",
    [
        "step-20_rank_{}.npz",
        "step-20.rank-{}.npz",
        "step-20-rank{}.npz",
        "step-20-model-rank-0000{}-of-00003.npz",
        "step-20/state_rank_{}.npz",
        "step-20_rank_{}/state.npz",
        "step-20_rank_{0}/state_rank_{0}.npz",
        "step-20/rank_{0}/state-rank-{0}.npz",
        "step-20/weights-0000{}-of-00003.npz",
    ],
)
def test_parts_of_all_ranks_are_a_checkpoint_and_one_that_is_missing_is_named(
    tmp_path: Path, name: str
) -> None:
    parts = {name.format(rank): archive() for rank in range(3)}
    run = run_of(tmp_path, 3, parts)
    assert resumed(run) == ("checkpoints/step-20", [])
    (tmp_path / "run/checkpoints" / name.format(1)).unlink()
    key, [why] = resumed(run)
    assert key == "checkpoints/step-10.npz"
    if "weights" in name:
        assert why == "step-20/weights-*-of-00003.npz: 2 of 3 files are there"
    else:
        assert why == f"{name.format(1)} is missing"


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("step-20.pt", b"", "step-20.pt is empty"),
        ("step-20.npz", archive()[:-1000], "step-20.npz is cut off or damaged: "),
        ("step-20.npz", flipped(archive()), "step-20.npz is "),
        ("step-20/1.npz", archive()[:5000], "step-20/1.npz is cut off or damaged: "),
        (
            "step-20.safetensors",
            tensors()[:-4],
            f"has {len(tensors()) - 4:,} bytes instead of {len(tensors()):,}",
        ),
        ("step-20.safetensors", tensors()[:20], "step-20.safetensors is cut off in its header"),
        ("step-20.safetensors", b"\2\0\0\0\0\0\0\0[]", "has a damaged header"),
        ("step-20/__0_0.distcp", archive(), "step-20/.metadata is missing"),
    ],
)
def test_a_file_that_is_cut_off_or_damaged_is_named(
    tmp_path: Path, name: str, content: bytes, why: str
) -> None:
    key, [said] = resumed(run_of(tmp_path, 1, {name: content}))
    assert key == "checkpoints/step-10.npz"
    assert why in said


@pytest.mark.parametrize(
    "files",
    [
        {"step-20.pt": b"weights"},
        {"step-20.npz": archive()},
        {"step-20.safetensors": tensors()},
        {"step-20/weights.bin": b"w", "step-20/config.json": b"{}"},
        # Numbers within a dimension of a mesh, or on a host, are not those of ranks.
        {"step-20/zero_pp_rank_0_mp_rank_00_states.npz": archive()},
        {"step-20/tp_rank_0.npz": archive(), "step-20/tp_rank_1.npz": archive()},
        {f"step-20/tensor_parallel_rank_{rank}.npz": archive() for rank in range(2)},
        # Nor are those of a matrix, or how far the training is.
        {"step-20-lora_rank_2.npz": archive()},
        {"step-20-rank16.npz": archive()},
        {"step-20/adapter-rank-16.npz": archive()},
        {"step-20-of-1000.npz": archive()},
        {"step-20-epoch-3-of-10.npz": archive()},
        {"step-20/weights.npz": archive(), "step-20/_SUCCESS": b"", "step-20/.done": b""},
        # Something before an archive.
        {"step-20.bin": b"x" + archive()},
        {"step-20.npz": archive(), "step-20.npz.tmp": archive()[:100]},
    ],
)
def test_sound_files_and_those_of_unknown_formats_are_used(
    tmp_path: Path, files: dict[str, bytes]
) -> None:
    key, said = resumed(run_of(tmp_path, 4, files))
    assert (key.startswith("checkpoints/step-20"), said) == (True, [])


def test_the_parts_of_another_number_of_ranks_are_not_used(tmp_path: Path) -> None:
    parts = {f"step-20_rank_{rank}.npz": archive() for rank in range(3)}
    run = run_of(tmp_path, 3, parts)
    assert resumed(run, ranks=2) == (
        "checkpoints/step-10.npz",
        ["it has the parts of 3 ranks, and the training continues with 2"],
    )
    assert resumed(run, ranks=3) == ("checkpoints/step-20", [])
    # Of a rank that the run did not have, nobody knows what it is.
    other = run_of(tmp_path / "other", 2, parts)
    assert resumed(other)[1] == ["step-20_rank_2.npz is of a rank that the run did not have"]


def test_all_ranks_are_counted_also_if_only_one_captures(tmp_path: Path) -> None:
    run = run_of(tmp_path, 1, {f"step-20_rank_{rank}.npz": archive() for rank in range(3)})
    write_record(run.storage, LaunchRecord(["train"], "/", ranks=3))
    assert resumed(run) == ("checkpoints/step-20", [])
    assert resumed(run, ranks=3) == ("checkpoints/step-20", [])
    (tmp_path / "run/checkpoints/step-20_rank_2.npz").unlink()
    assert resumed(run)[1] == ["step-20_rank_2.npz is missing"]


def test_an_index_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    run = run_of(tmp_path, 1, {"step-20/__0_0.distcp": archive()})
    os.symlink("__0_0.distcp", tmp_path / "run/checkpoints/step-20/.metadata")
    key, [why] = resumed(run)
    assert key == "checkpoints/step-10.npz"
    assert why.startswith("step-20/.metadata cannot be read: ")


def test_shards_of_the_hook_and_links_are_not_resumed(tmp_path: Path) -> None:
    shards = {f"step-20.rank-{rank}.safetensors": tensors() for rank in range(2)}
    run = run_of(tmp_path, 2, shards)
    assert resumed(run) == ("checkpoints/step-10.npz", [])
    os.symlink("step-10.npz", tmp_path / "run/checkpoints/step-25.npz")
    said: list[str] = []
    last_checkpoint(run, report=said.append)
    assert len(said) == 1
    assert "step-25.npz cannot be read: " in said[0]


def test_the_path_of_parts_is_what_their_names_share(tmp_path: Path) -> None:
    parts = {f"step-20_rank_{rank}.npz": archive() for rank in range(2)}
    run = run_of(tmp_path, 2, parts)
    found = last_checkpoint(run)
    assert found == SavedCheckpoint("run", "checkpoints/step-20", 20)
    path = fetch_checkpoint(run.storage, found, tmp_path / "fetched")
    assert path == tmp_path / "run/checkpoints/step-20"
    assert SavedCheckpoint.at(str(path)) == found


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_checkpoints_of_torch_are_looked_at_without_loading_them(tmp_path: Path) -> None:
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    torch = pytest.importorskip("torch")
    state = {f"layer-{n}": torch.arange(5_000.0) + n for n in range(3)}

    def saved(name: str, change: Callable[[Path], object]) -> tuple[str, list[str]]:
        run = run_of(tmp_path / name, 1, {})
        folder = tmp_path / name / "run/checkpoints/step-20"
        dcp.save(state, checkpoint_id=folder, no_dist=True)
        change(folder)
        return resumed(run)

    assert saved("sound", lambda _: None) == ("checkpoints/step-20", [])
    # A rank without a tensor of its own leaves an empty file; one that has some does not.
    idle = saved("idle", lambda folder: (folder / "__1_0.distcp").touch())
    assert idle == ("checkpoints/step-20", [])
    assert saved("emptied", lambda folder: (folder / "__0_0.distcp").write_bytes(b""))[1] == [
        "step-20/__0_0.distcp is empty"
    ]
    assert saved("index", lambda folder: (folder / ".metadata").unlink())[1] == [
        "step-20/.metadata is missing"
    ]
    assert saved("part", lambda folder: (folder / "__0_0.distcp").rename(folder / "x"))[1] == [
        "step-20/__0_0.distcp is missing"
    ]
    # Each rank writes an index of its own.
    apart = run_of(tmp_path / "apart", 2, {})
    folder = tmp_path / "apart/run/checkpoints/step-20"
    dcp.save(state, checkpoint_id=folder, no_dist=True, use_collectives=False)
    assert [path.name for path in folder.glob("*.metadata")] == ["__0.metadata"]
    assert resumed(apart)[1] == ["step-20/__1.metadata is missing"]
    (folder / "__1.metadata").write_bytes(b"\x80__1_0.distcp")
    assert resumed(apart)[1] == ["step-20/__1_0.distcp is missing"]
    (folder / "__1_0.distcp").write_bytes(archive())
    assert resumed(apart) == ("checkpoints/step-20", [])
    for at in (0.1, 0.5, 0.9):

        def damage(folder: Path, at: float = at) -> None:
            path = folder / "__0_0.distcp"
            content = bytearray(path.read_bytes())
            content[int(at * len(content))] ^= 1
            path.write_bytes(content)

        key, [why] = saved(f"damaged-{at}", damage)
        assert key == "checkpoints/step-10.npz"
        assert why.startswith("step-20/__0_0.distcp is ")
    plain = run_of(tmp_path / "plain", 1, {})
    torch.save(state, tmp_path / "plain/run/checkpoints/step-20.pt")
    assert resumed(plain) == ("checkpoints/step-20.pt", [])
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(state, tmp_path / "plain/run/checkpoints/step-20.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert resumed(plain) == ("checkpoints/step-20.pt", [])
    with (tmp_path / "plain/run/checkpoints/step-20.pt").open("r+b") as file:
        file.truncate(30_000)
    assert resumed(plain)[1][0].startswith("step-20.pt is cut off or damaged: ")
