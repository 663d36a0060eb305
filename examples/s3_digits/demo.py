"""Digits on S3: a rule boosts a rare class, a kill costs no record, a damaged one is named.

The S3 server, the flow and the judge are real, and in the folder runs/s3-digits.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

from examples.s3_digits.data import RARE, RECORDS, damage, write_digits
from vinedresser import open_run

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDER = ROOT / "runs" / "s3-digits"
RUN = FOLDER / "store" / "s3-digits"
DATA = "s3://vinedresser/digits"
STEPS = 4000


def main() -> None:
    """Write the data, train, kill, resume, and train again without a kill."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    began = time.monotonic()
    # A server and a cache of the demo's own.
    os.environ |= {
        name: str(FOLDER / "servers")
        for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")
    }
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    vinedresser("up", "--s3")
    try:
        write_digits(DATA)
        damage(DATA, "3")
        say(f"written: {DATA}, class {RARE} with {RECORDS} records, one record of class 3 damaged")
        killed = boosted_and_killed()
        train("resumed", killed)
        position = FOLDER / "position.json"
        position.write_text(torch.load(killed, weights_only=True)["position"])
        undisturbed = FOLDER / "undisturbed.pt"
        train("undisturbed", undisturbed, "--weights", str(position))
        compare(killed, undisturbed)
        say(python("examples.s3_digits.train_tf", "--data", DATA).rstrip())
    finally:
        vinedresser("down")
    say(f"{time.monotonic() - began:.0f} s; next: vinedresser ui {FOLDER / 'store'}")


def boosted_and_killed() -> Path:
    """Train until a rule has boosted the rare class, and taken that back; then kill."""
    checkpoint = FOLDER / "killed.pt"
    command = [sys.executable, "-m", "vinedresser", "train", str(HERE / "experiment.toml")]
    flow = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    seen = 0
    # The boost, and the end of it.
    while flow.poll() is None and seen < 2:
        time.sleep(0.2)
        controls = open_run(RUN).controls() if (RUN / "controls.jsonl").exists() else []
        for control in controls[seen:]:
            say(f"step {control.step}: {control.words}, since {control.reason}")
        seen = len(controls)
    if seen < 2:
        raise RuntimeError(f"the training ended without a boost: see {RUN / 'log.txt'}")
    if flow.poll() is None:
        pid = json.loads((RUN / "heartbeat" / "0.json").read_bytes())["process"]["pid"]
        os.kill(pid, signal.SIGKILL)
        say("killed")
    flow.wait()
    return checkpoint


def train(name: str, checkpoint: Path, *more: str) -> None:
    """Train from a checkpoint on to the end, without actions."""
    script = ["-m", "examples.s3_digits.train", "--data", DATA, "--checkpoint", str(checkpoint)]
    store = ["--store", str(FOLDER / "store"), "--name", name, "--rule", "nonfinite"]
    vinedresser("run", *store, *script, "--steps", str(STEPS), *more)


def compare(one: Path, other: Path) -> None:
    """Say whether two trainings have the same weights, bit for bit."""
    models = [torch.load(path, weights_only=True)["model"] for path in (one, other)]
    same = all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    say(
        f"killed and resumed, or undisturbed: final weights {'are' if same else 'ARE NOT'} the same"
    )


def vinedresser(*words: str) -> None:
    """Run a command, and take over the environment variables that it prints."""
    for line in python("vinedresser", *words).splitlines():
        name, _, value = line.removeprefix("export ").partition("=")
        if line.startswith("export "):
            os.environ[name] = value.strip("'\"")
        else:
            say(line)


def python(module: str, *words: str) -> str:
    """Run a module; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        check=True,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
