"""The weights of a training that is to keep its model, as the best trial of a sweep."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import xgboost
from safetensors.torch import load_file

from tests import warm_python
from tests.paths import ROOT
from vinedresser.testing.runs import start_run

TORCH = """
import sys
import torch
from vinedresser.capture import Hook

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
hook = Hook().watch(net, optimizer=optimizer)
for step in range(5):
    optimizer.zero_grad()
    net(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
torch.save(net.state_dict(), sys.argv[1])
print(torch.rand(1).item())
if len(sys.argv) > 2:
    raise ValueError("after the last step")
"""
# Its callback and model are gone when the process ends.
BOOSTER = """
import sys
from tests.capture.xgboost_.trainings import PROBLEMS
from vinedresser.capture import Hook

hook = Hook()

def train():
    booster = PROBLEMS["binary"].train(hook.xgboost())
    booster.save_model(sys.argv[1])

train()
"""
LIGHTNING = """
import sys
from pathlib import Path
import torch
from tests.capture.lightning_.trainings import Classifier, loader, trainer
from vinedresser.capture import Hook

module = Classifier()
trainer(Path(sys.argv[1]).parent, Hook().lightning()).fit(module, loader())
torch.save(module.state_dict(), sys.argv[1])
"""
# Two estimators with different coefficients, and two boosters, in one hook.
SEVERAL = """
import sys
import numpy as np
import xgboost
from sklearn.linear_model import LinearRegression
from vinedresser.capture import Hook

hook = Hook()
x = np.arange(8.0).reshape(4, 2) ** 2
slopes = (3.0, 5.0)
for slope in slopes:
    hook.sklearn(LinearRegression()).fit(x, x[:, 0] * slope)
    rows = xgboost.DMatrix(x, x[:, 0] * slope)
    xgboost.train({"max_depth": 1}, rows, 1, callbacks=[hook.xgboost()])
np.save(sys.argv[1], slopes)
"""
KERAS = """
import sys
import keras
import numpy as np
from vinedresser.capture import Hook

model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
with Hook() as hook:
    hook.watch(model)
    model.fit(np.ones((8, 3)), np.ones((8, 1)), batch_size=2, verbose=0)
np.savez(sys.argv[1], *model.get_weights())
"""


def train(
    folder: Path, *arguments: str, script: str = TORCH, own: str = "own.pt", keeps: bool = True
) -> tuple[Path, str]:
    """Train in a launched run; return its directory and what the script printed."""
    run = folder / f"run-{len([*folder.iterdir()])}"
    start_run(run)
    variables = {"PATH": "", "PYTHONPATH": str(ROOT), "VINEDRESSER_RUN": str(run)}
    variables |= {"HOME": str(folder), "KERAS_BACKEND": "torch"}
    variables |= {"VINEDRESSER_KEEP_MODEL": "1"} if keeps else {}
    words = ["-c", script, str(folder / own), *arguments]
    done = warm_python.TORCH.run(words, folder, variables)
    assert done.returncode == len(arguments), done.stderr
    return run, done.stdout


@pytest.mark.thorough
def test_the_last_weights_are_kept_and_the_training_is_the_same(tmp_path: Path) -> None:
    run, printed = train(tmp_path)
    kept = load_file(run / "checkpoints" / "last" / "step-5.safetensors")
    own = torch.load(tmp_path / "own.pt", weights_only=True)
    assert kept.keys() == own.keys()
    assert all(torch.equal(kept[name], own[name]) for name in own)
    other, again = train(tmp_path, keeps=False)
    assert not (other / "checkpoints").exists()
    assert again == printed
    same = torch.load(tmp_path / "own.pt", weights_only=True)
    assert all(torch.equal(same[name], own[name]) for name in own)


@pytest.mark.thorough
def test_a_booster_is_kept_though_its_training_is_over(tmp_path: Path) -> None:
    run, _ = train(tmp_path, script=BOOSTER, own="own.ubj")
    (kept,) = (run / "checkpoints" / "last").iterdir()
    assert kept.suffix == ".ubj"
    own = xgboost.Booster(model_file=tmp_path / "own.ubj")
    assert xgboost.Booster(model_file=kept).get_dump() == own.get_dump()


@pytest.mark.thorough
def test_a_lightning_module_is_kept_though_its_trainer_is_done(tmp_path: Path) -> None:
    run, _ = train(tmp_path, script=LIGHTNING)
    (kept,) = (run / "checkpoints" / "last").iterdir()
    assert kept.name == "step-4.safetensors"
    own = torch.load(tmp_path / "own.pt", weights_only=True)
    weights = load_file(kept)
    assert "net.0.weight" in weights
    assert all(torch.equal(weights[name], own[name]) for name in weights)


@pytest.mark.thorough
def test_a_keras_model_is_kept(tmp_path: Path) -> None:
    run, _ = train(tmp_path, script=KERAS, own="own.npz")
    (kept,) = (run / "checkpoints" / "last").iterdir()
    assert kept.name == "step-4.weights.h5"
    h5py = pytest.importorskip("h5py")
    with h5py.File(kept) as file, np.load(tmp_path / "own.npz") as own:
        variables = file["layers/dense/vars"]
        assert np.array_equal(variables["0"][()], own["arr_0"])


@pytest.mark.thorough
def test_each_of_several_models_is_kept(tmp_path: Path) -> None:
    script = TORCH.replace(
        "for step", 'other = torch.nn.Linear(2, 1)\nhook.watch(other, name="other")\nfor step'
    )
    run, _ = train(tmp_path, script=script)
    kept = sorted(one.name for one in (run / "checkpoints" / "last").iterdir())
    assert kept == ["step-5-other.safetensors", "step-5.safetensors"]


@pytest.mark.thorough
def test_estimators_and_boosters_do_not_overwrite_each_other(tmp_path: Path) -> None:
    run, _ = train(tmp_path, script=SEVERAL, own="own.npy")
    last = run / "checkpoints" / "last"
    boosters = sorted(last.glob("*.ubj"))
    assert [one.name for one in boosters] == ["step-4-2.ubj", "step-4.ubj"]
    assert len({xgboost.Booster(model_file=one).get_dump()[0] for one in boosters}) == 2
    slopes = []
    for name in ("step-4.npz", "step-4-2.npz"):
        with np.load(last / name) as kept:
            slopes.append(kept["coef_"][0])
    np.testing.assert_allclose(slopes, np.load(tmp_path / "own.npy"))


@pytest.mark.thorough
def test_a_training_that_fails_keeps_no_model(tmp_path: Path) -> None:
    run, _ = train(tmp_path, "fails")
    assert not (run / "checkpoints").exists()
