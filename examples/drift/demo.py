"""Serve a classifier, feed it ordinary and then turned images, and see what the monitor does.

Prefect's server and worker and MLflow's database are real, and in the folder runs/drift-demo.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from examples.drift.service import build, data, train
from vinedresser.serving import Limits, RequestRecorder, watch

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "runs" / "drift-demo"
ORDINARY, TURNED, DEGREES = 600, 300, 25.0


def main() -> None:
    """Train, deploy the monitor, serve, and wait for the explanation."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    model = build()
    say(f"trained: accuracy {train(model):.1%}")
    save_file(model.state_dict(), FOLDER / "model.safetensors")
    # Servers of the demo's own, which end with it.
    os.environ |= {name: str(FOLDER / "servers") for name in ("XDG_STATE_HOME", "XDG_DATA_HOME")}
    vinedresser("up")
    try:
        vinedresser("deploy", str(HERE / "monitor.toml"))
        serve(model)
    finally:
        vinedresser("down")


def serve(model: nn.Module) -> None:
    """Answer requests, and let the monitor judge them twice: before and after they change."""
    # The demo's requests come faster than those of a service, and all of them are to count.
    limits = Limits(rate=1e6, cost=1.0)
    recorder = RequestRecorder(FOLDER / "requests", "clothes", limits=limits)
    watched = watch(model, recorder, layer="9")
    images = data()[2]
    answer(model, images.x[:ORDINARY])
    recorder.flush()
    judge()
    say(f"{ORDINARY} ordinary requests: {answered()}")
    answer(model, turned(images.x[ORDINARY : ORDINARY + TURNED]))
    recorder.flush()
    judge()
    say(f"{TURNED} requests turned by {DEGREES:g} degrees: {answered()}")
    page = explained()
    say(f"explained by itself: {page}")
    say(f"next: XDG_STATE_HOME={FOLDER / 'servers'} vinedresser ui {FOLDER}")
    watched.close()
    recorder.close()


def answer(model: nn.Module, images: Tensor) -> None:
    """Make a request of each image."""
    with torch.no_grad():
        for image in images:
            model(image[None])


def turned(images: Tensor) -> Tensor:
    """Return images [N, 1, H, W] turned around their centre."""
    angle = torch.deg2rad(torch.tensor(DEGREES))
    rows = [[angle.cos(), -angle.sin(), 0.0], [angle.sin(), angle.cos(), 0.0]]
    grid = F.affine_grid(
        torch.tensor([rows]).expand(len(images), 2, 3), list(images.shape), align_corners=False
    )
    return F.grid_sample(images, grid, align_corners=False)


def judge() -> None:
    """Have the worker run the deployed monitor, as a schedule would."""
    subprocess.run(
        [sys.executable, "-m", "prefect", "deployment", "run", "monitor/clothes", "--watch"],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def answered() -> str:
    """Return what the monitor has found so far."""
    found = json.loads((FOLDER / "clothes" / "life-1" / "answer.json").read_bytes())
    return str(found["text"])


def explained() -> Path:
    """Wait until the automation has had the alarm explained."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for page in FOLDER.glob("clothes/life-1/explanations/*/explain.html"):
            return page
        time.sleep(0.5)
    raise TimeoutError("nothing was explained within two minutes")


def vinedresser(*words: str) -> None:
    """Run a command, and take over the environment variables that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "vinedresser", *words], check=True, stdout=subprocess.PIPE, text=True
    )
    for line in done.stdout.splitlines():
        name, _, value = line.removeprefix("export ").partition("=")
        if line.startswith("export "):
            os.environ[name] = value.strip("'\"")


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
