"""Collections by module, by type and by kind of tensor; activations; predicates."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from vinedresser.capture import Collection, Hook, SaveConfig, open_run
from vinedresser.errors import ConfigError
from vinedresser.store.collections.modules import ModuleInfo, activation_of, module_of

EVERY = SaveConfig(every=1)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 1)
    )


def train(path: Path, model: nn.Module, collections: dict[str, SaveConfig | Collection]) -> None:
    """Take four steps under a hook."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(path, collections=collections).watch(model, optimizer=optimizer):
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("outputs/block1.conv", "block1.conv"),
        ("outputs/block1.conv#2[0]", "block1.conv"),
        ("inputs/block1.conv[mask]", "block1.conv"),
        ("inputs/block1.relu()#1", "block1.relu()"),
        ("gradients/block1.conv.weight", "block1.conv"),
        ("gradients/block1.conv.weight|channel_l2", "block1.conv"),
        ("optimizer_state/block1.conv.weight.exp_avg", "block1.conv"),
        ("weights/scale", ""),
        ("losses/MSELoss", None),
        ("saved/latent", None),
        ("nothing", None),
    ],
)
def test_the_module_of_a_name(name: str, path: str | None) -> None:
    assert module_of(name) == path


def test_the_activation_of_a_name() -> None:
    modules = {"act": ModuleInfo("ReLU", "relu"), "fc": ModuleInfo("Linear")}
    assert activation_of("outputs/act#1", modules) == "relu"
    assert activation_of("inputs/act", modules) == "relu"
    assert activation_of("outputs/fc", modules) == ""
    assert activation_of("outputs/fc.gelu()", modules) == "gelu"
    assert activation_of("outputs/fc.conv2d()", modules) == ""
    assert activation_of("gradients/act.weight", modules) == ""


def test_a_module_object_selects_its_tensors(tmp_path: Path) -> None:
    model = network()
    last = Collection(modules=(model[3],), save=EVERY)
    train(tmp_path / "run", model, {"last": last})
    run = open_run(tmp_path / "run")
    held = {"weights/3.weight", "biases/3.bias", "gradients/3.weight", "gradients/3.bias"}
    assert held | {"outputs/3"} <= set(run.tensor_names())
    assert {name.partition("/")[2][0] for name in run.tensor_names()} == {"3"}
    assert run.tensor_names(collection="last") == run.tensor_names()
    assert run.info.capture["last"]["modules"] == ["3"]


def test_types_and_kinds_narrow_each_other(tmp_path: Path) -> None:
    lines = Collection(types=(nn.Linear,), kinds=("outputs",), save=EVERY)
    train(tmp_path / "run", network(), {"lines": lines})
    run = open_run(tmp_path / "run")
    assert run.tensor_names() == ["outputs/0", "outputs/2.0", "outputs/3"]
    assert run.tensor_names(collection="lines") == run.tensor_names()


def test_activations_are_the_outputs_of_activation_functions(tmp_path: Path) -> None:
    train(tmp_path / "run", network(), {"activations": EVERY})
    run = open_run(tmp_path / "run")
    assert run.tensor_names() == ["outputs/1", "outputs/2.1"]
    assert run.tensor_names(collection="activations") == run.tensor_names()
    assert run.info.modules["2.1"] == ["Tanh", "tanh"]
    assert run.info.modules["0"] == ["Linear", ""]


def test_missing_modules_are_reported_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stray = nn.Linear(1, 1)
    collections: dict[str, SaveConfig | Collection] = {
        "typo": Collection(modules=("2.3",), save=EVERY),
        "stray": Collection(modules=(stray,), save=EVERY),
    }
    train(tmp_path / "run", network(), collections)
    said = capfd.readouterr().err
    assert len(re.findall(r"collection typo matched nothing at step 0 .*2\.3: ", said)) == 1
    assert "did you mean 2.0" in said or "; modules: " in said
    assert len(re.findall(r"\bstray: .*\bLinear\b", said)) == 1


def test_invalid_collections_are_rejected() -> None:
    with pytest.raises(ConfigError, match="unknown kind 'output'; did you mean outputs"):
        Collection(types=("Linear",), kinds=("output",))
    with pytest.raises(ConfigError, match="takes no regex, modules or types"):
        Collection("gradients", types=("Linear",))
    with pytest.raises(ConfigError, match="types: 3 is neither a class"):
        Collection(types=(3,))
    with pytest.raises(ConfigError, match="modules = 'conv1': must be a list"):
        Collection(modules="conv1")  # type: ignore[arg-type]


def test_a_predicate_narrows_what_is_due(tmp_path: Path) -> None:
    odd = SaveConfig(every=1, steps=(0,), when=lambda step, mode: step % 2 == 1)
    train(tmp_path / "run", network(), {"gradients": odd})
    run = open_run(tmp_path / "run")
    assert run.tensor("gradients/0.weight").steps().tolist() == [0, 1, 3]
    assert "test_a_predicate" in run.info.capture["gradients"]["save"][0]["when"]


def test_a_failing_predicate_is_reported_once_without_harm(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(step: int, mode: str) -> bool:
        raise RuntimeError(f"{mode} {step}")

    train(tmp_path / "run", network(), {"gradients": SaveConfig(every=1, when=broken)})
    said = capfd.readouterr().err
    assert said.count("capture failed in the predicate") == 1
    assert "RuntimeError: train 0; training continues" in said
    assert open_run(tmp_path / "run").status.state == "finished"


def test_inputs_and_outputs_of_a_whole_model(tmp_path: Path) -> None:
    train(tmp_path / "run", network(), {"model_inputs": EVERY, "model_outputs": EVERY})
    run = open_run(tmp_path / "run")
    assert run.tensor_names() == ["inputs/Sequential", "outputs/Sequential"]
    assert run.tensor_names(collection="model_inputs") == ["inputs/Sequential"]
    assert run.info.modules["Sequential"] == ["Sequential", "", "model"]


def test_values_of_a_custom_loop_belong_to_model_inputs_and_outputs(tmp_path: Path) -> None:
    with Hook(tmp_path / "run", collections={"model_inputs": EVERY}) as hook:
        hook.step(inputs=[[1.0, 2.0]], outputs=[3.0], loss=0.5)
    assert open_run(tmp_path / "run").tensor_names() == ["inputs/batch"]
