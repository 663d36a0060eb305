"""A small PyTorch network on scikit-learn's digits that answers requests, for `monitor.toml`.

`python service.py` trains it, and answers ordinary requests; `python service.py --shift` answers
requests with noise. With `--wait 120` it stays, as services do. Replace the functions by your own;
monitor.toml names them.
"""

from __future__ import annotations

import argparse
import time
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits
from torch import Tensor, nn

from vinedresser.serving import Limits, RequestRecorder, watch

WEIGHTS = Path(__file__).with_name("model.safetensors")
REQUESTS = Path(__file__).with_name("requests")
NAME = "digits"


@cache
def data() -> tuple[Tensor, Tensor]:
    """Return images, float32 [N, 1, 8, 8] from 0 to 1, and labels, int64 [N]."""
    digits = load_digits()
    images = torch.tensor(digits.images / 16.0, dtype=torch.float32)[:, None]
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return images[order], torch.tensor(digits.target)[order]


def build() -> nn.Module:
    """Return the network with random weights."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def baseline() -> tuple[Tensor, Tensor]:
    """Return images that the network is not trained on, and their labels."""
    images, labels = data()
    return images[800:1300], labels[800:1300]


def train(model: nn.Module) -> None:
    """Train the network on the first 800 images."""
    images, labels = data()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for epoch in range(20):
        random = torch.Generator().manual_seed(epoch)
        for chosen in torch.randperm(800, generator=random).split(50):
            loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def requests(count: int, noise: float) -> Tensor:
    """Return images as a service might get them, with noise of this standard deviation."""
    images = data()[0][1300:]
    random = torch.Generator().manual_seed(0)
    chosen = torch.randint(len(images), (count,), generator=random)
    return images[chosen] + noise * torch.randn(count, 1, 8, 8, generator=random)


def main() -> None:
    """Train the network if necessary, and answer requests."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--shift", action="store_true", help="answer requests with noise")
    parser.add_argument("--wait", type=float, default=0, help="seconds to stay, for an alarm")
    arguments = parser.parse_args()
    model = build()
    if WEIGHTS.exists():
        model.load_state_dict(load_file(WEIGHTS))
    else:
        train(model)
        save_file(model.state_dict(), WEIGHTS)
    model.eval()

    # These lines are all that a service needs. Without the limits, at most 200 requests per second
    # are recorded, at the cost of a thousandth of a core: of a loop that does nothing else, a few.
    recorder = RequestRecorder(REQUESTS, NAME, limits=Limits(rate=1e6, cost=1.0))
    watched = watch(model, recorder)
    with torch.no_grad():
        for image in requests(arguments.requests, 0.4 if arguments.shift else 0.0):
            model(image[None])
    recorder.flush()
    print(f"answered {arguments.requests} requests", flush=True)
    # Only a running service can hand over the inputs of its last requests.
    time.sleep(arguments.wait)
    watched.close()
    recorder.close()


if __name__ == "__main__":
    main()
