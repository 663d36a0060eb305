"""On a CUDA device: asynchronous copies have the right values, and the training never waits."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.capture.torch_.zoo import EVERYTHING
from tests.capture.torch_.zoo_modules import Block
from vinedresser.capture import Hook, SaveConfig, open_run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.ReLU(inplace=True),
        Block(32),
        Block(32),
        nn.Flatten(),
        nn.LazyLinear(5),
    ).cuda()


def train(
    hook: Hook | None, steps: int = 4, *, scaler: torch.amp.GradScaler | None = None
) -> tuple[nn.Module, list[dict[str, Tensor]], list[float]]:
    """Train; return the model, what its optimizer was given by step, and the losses."""
    torch.backends.cudnn.deterministic = True
    model, loss = net(), nn.CrossEntropyLoss()
    generator = torch.Generator("cuda").manual_seed(2)
    model(torch.randn(8, 3, 16, 16, device="cuda", generator=generator))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=scaler is not None)
    if hook is not None:
        hook.watch(model, loss, optimizer)
    seen, losses = [], []
    for _ in range(steps):
        x = torch.randn(8, 3, 16, 16, device="cuda", generator=generator)
        y = torch.randint(0, 5, (8,), device="cuda", generator=generator)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=scaler is not None):
            value = loss(model(x), y)
        losses.append(value.item())
        scale = 1.0 if scaler is None else scaler.get_scale()
        (value if scaler is None else scaler.scale(value)).backward()
        named = dict(model.named_parameters())
        seen.append({n: p.grad.cpu() / scale for n, p in named.items() if p.grad is not None})
        seen[-1] |= {f"weight of {n}": p.detach().cpu() for n, p in named.items()}
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
    return model, seen, losses


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("staged", [256 << 20, 0])
def test_tensors_are_captured_in_time_and_the_training_is_bit_identical(
    scaled: bool, staged: int, tmp_path: Path
) -> None:
    def scaler() -> torch.amp.GradScaler | None:
        return torch.amp.GradScaler("cuda", init_scale=1024.0) if scaled else None

    plain, _, _ = train(None, scaler=scaler())
    hook = Hook(tmp_path / "run", collections=EVERYTHING)
    from vinedresser.capture.torch_.copies.torch_copier import TorchCopier

    hook._session.copier(TorchCopier)._copies._most_staged = staged
    hooked, seen, losses = train(hook, scaler=scaler())
    hook.close()
    assert hook.problems == []
    for one, other in zip(plain.parameters(), hooked.parameters(), strict=True):
        assert torch.equal(one, other)
    run = open_run(tmp_path / "run")
    for step, noted in enumerate(seen):
        for name, value in noted.items():
            kind = "biases" if "bias" in name else "weights"
            full = f"gradients/{name}" if " of " not in name else f"{kind}/{name.split()[-1]}"
            np.testing.assert_array_equal(run.tensor(full).value(step), value, err_msg=full)
            l2 = run.tensor(full).reduction("l2").values[step]
            assert l2 == pytest.approx(value.double().norm().item(), rel=1e-5)
    captured = run.scalars("losses")["losses/CrossEntropyLoss"].values
    np.testing.assert_allclose(captured, losses, rtol=1e-6)


def test_outputs_of_layers_in_place_are_those_before(tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(inplace=True)).cuda()
    hook = Hook(tmp_path / "run", collections={"outputs": SaveConfig(every=1)}).watch(model)
    x = torch.randn(2048, 4096, device="cuda")
    with torch.no_grad():
        expected = model[0](x).cpu()
        with hook.mode("eval"):
            model(x)
    hook.close()
    captured = open_run(tmp_path / "run").tensor("outputs/0").value(0, mode="eval")
    np.testing.assert_array_equal(captured, expected)
    assert (captured < 0).any()


def test_the_training_thread_does_not_wait_for_copies(tmp_path: Path) -> None:
    model = nn.Linear(8192, 8192, bias=False).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    collections = {"weights": SaveConfig(every=1), "gradients": SaveConfig(every=1)}
    hook = Hook(tmp_path / "run", collections=collections).watch(model, optimizer=optimizer)
    x = torch.randn(64, 8192, device="cuda")

    def step() -> float:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        torch.cuda.synchronize()
        begun = time.perf_counter()
        optimizer.step()
        return time.perf_counter() - begun

    step()
    hook.flush()
    took = step()
    since = time.perf_counter()
    torch.cuda.synchronize()
    waited = time.perf_counter() - since
    hook.close()
    # 512 MiB over the bus take far longer than the calls that begin the copies.
    assert took < waited


def test_pinned_memory_stays_bounded(tmp_path: Path) -> None:
    model = nn.Linear(2048, 2048, bias=False).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hook = Hook(tmp_path / "run", collections={"weights": SaveConfig(every=1)})
    hook.watch(model, optimizer=optimizer)
    x = torch.randn(8, 2048, device="cuda")
    for _ in range(100):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    hook.close()
    size = 2048 * 2048 * 4
    # In transit (256 MiB), being filled, and unused (512 MiB).
    assert torch.cuda.host_memory_stats()["allocated_bytes.peak"] <= (768 << 20) + 2 * size
    assert open_run(tmp_path / "run").steps("train").tolist() == list(range(100))


def test_a_model_on_two_devices(tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device only")

    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4).to("cuda:0"), nn.Linear(4, 1).to("cuda:1")

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.second(self.first(x).to("cuda:1"))
            return out

    model = Split()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Hook(tmp_path / "run", collections=EVERYTHING) as hook:
        hook.watch(model, optimizer=optimizer)
        model(torch.ones(2, 4, device="cuda:0")).sum().backward()
        optimizer.step()
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    for name in ("gradients/first.weight", "gradients/second.weight"):
        l2 = run.tensor(name).reduction("l2").values[0]
        assert l2 == pytest.approx(np.linalg.norm(run.tensor(name).value(0)), rel=1e-5)
