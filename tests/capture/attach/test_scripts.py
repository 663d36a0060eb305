"""An unchanged script behaves the same under `vinedresser run` as alone."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.capture.attach.runs import Both, alone, attached, both, script, split_stderr
from tests.cli.command_line import vinedresser
from vinedresser.store.reading.reader import open_run

# Without a framework, since importing one takes seconds.
ORDINARY = """
    import os, sys, warnings
    print(sys.argv, __name__, __file__, sys.path, "sitecustomize" in sys.modules)
    print(sys.stdin.read(), end="")
    print(sorted(name for name in sys.modules if name.startswith("vinedresser")))
    warnings.warn("careful")
    print("no newline at the end", end="", file=sys.stderr, flush=True)
    how = sys.argv[1]
    if how == "exit":
        sys.exit(3)
    if how == "message":
        sys.exit("a message")
    if how == "_exit":
        os._exit(4)
    if how == "raise":
        def inner():
            return {}["key"]
        inner()
    if how == "signal":
        os.kill(os.getpid(), 11)
"""


def same(pair: Both) -> None:
    assert pair.attached.stdout == pair.alone.stdout
    assert split_stderr(pair.attached.stderr)[0] == pair.alone.stderr


@pytest.mark.thorough
def test_arguments_output_exit_code_and_traceback_are_unchanged(tmp_path: Path) -> None:
    script(tmp_path, ORDINARY)
    pair = both("train.py", "raise", "--lr", "0.1", cwd=tmp_path, given="in ö\n")
    same(pair)
    assert pair.attached.returncode == pair.alone.returncode == 1


@pytest.mark.thorough
def test_a_signal_gives_the_exit_code_of_a_shell(tmp_path: Path) -> None:
    script(tmp_path, ORDINARY)
    pair = both("train.py", "signal", cwd=tmp_path)
    assert (pair.alone.returncode, pair.attached.returncode) == (-11, 128 + 11)


@pytest.mark.thorough
def test_modules_and_programs(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    script(package, ORDINARY, "module.py")
    pair = both("-m", "package.module", "exit", cwd=tmp_path)
    same(pair)
    assert pair.attached.returncode == 3
    shell = tmp_path / "train.sh"
    command = f"{sys.executable} package/module.py $how --lr 0.1; echo code $?"
    shell.write_text(
        f"#!/bin/sh\n{sys.executable} -m package.module end\n"
        f"for how in end message _exit; do {command}; done; exit 6\n",
        "utf-8",
    )
    shell.chmod(0o755)
    again = Both(
        alone("./train.sh", cwd=tmp_path, given="in ö\n"),
        attached("--name", "shell", "./train.sh", cwd=tmp_path, given="in ö\n"),
        tmp_path / "runs" / "shell",
    )
    assert again.attached.stdout == again.alone.stdout
    assert again.attached.stderr.startswith(again.alone.stderr)
    codes = [line for line in again.alone.stdout.splitlines() if line.startswith("code ")]
    assert codes == ["code 0", "code 1", "code 4"]
    assert again.attached.returncode == 6


@pytest.mark.thorough
def test_a_run_is_named_after_its_script(tmp_path: Path) -> None:
    script(tmp_path, "", "sub.py")
    launched = (sys.executable, "-m", "cProfile", "-o", "profile", "sub.py")
    for words in (("sub.py",), (sys.executable, "sub.py"), ("-m", "sub"), ("true",), launched):
        assert vinedresser("run", "--preset", "none", *words, cwd=tmp_path).returncode == 0
    names = {path.name for path in (tmp_path / "runs").iterdir()}
    assert names == {"sub-1", "sub-2", "sub-3", "sub-4", "true-1"}


@pytest.mark.thorough
def test_a_missing_training_is_reported_once(tmp_path: Path) -> None:
    script(tmp_path, "print('nothing to learn')")
    done = attached("train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "nothing to learn\n")
    assert done.stderr.count("no training was seen, so nothing was captured") == 1
    assert "step 0   cannot tell" in done.stderr
    quiet = attached("train.py", cwd=tmp_path, options=("--name", "other", "--no-attach"))
    assert "no training was seen" not in quiet.stderr
    script(tmp_path, "raise SystemExit(1)")
    failed = attached("train.py", cwd=tmp_path, options=("--name", "failed"))
    assert "no training was seen" not in failed.stderr


@pytest.mark.thorough
def test_invalid_collections_on_the_command_line(tmp_path: Path) -> None:
    script(tmp_path, "")
    wrong = attached("train.py", cwd=tmp_path, options=("--collection", "gradients:evry=3"))
    assert wrong.returncode == 2
    assert "evry" in wrong.stderr
    unreadable = attached("train.py", cwd=tmp_path, options=("--collection", "gradients:every"))
    assert unreadable.returncode == 2
    assert "--collection gradients:every: expected NAME:KEY=VALUE" in unreadable.stderr


@pytest.mark.thorough
def test_a_sitecustomize_of_the_user_is_run(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("answer = 42\n", encoding="utf-8")
    script(tmp_path, "import sitecustomize, sys; print(sitecustomize.answer, sys.path)")
    pair = both("train.py", cwd=tmp_path, PYTHONPATH=str(own))
    same(pair)
    assert pair.attached.stdout.startswith("42 ")
    # That of the launcher and of its supervisor fails, too.
    (own / "sitecustomize.py").write_text("1 / 0\n", encoding="utf-8")
    script(tmp_path, "import sys; print('sitecustomize' in sys.modules)")
    plain = alone(sys.executable, "train.py", cwd=tmp_path, PYTHONPATH=str(own))
    launcher = (sys.executable, "-m", "vinedresser", "run", "--name", "other", "--preset", "none")
    failing = alone(*launcher, "train.py", cwd=tmp_path, PYTHONPATH=str(own))
    assert failing.stdout == plain.stdout == "False\n"
    assert failing.stderr.count("ZeroDivisionError") == 3


@pytest.mark.thorough
def test_a_failing_import_of_a_framework_is_unchanged(tmp_path: Path) -> None:
    script(tmp_path, "raise ImportError('no such library')", "torch.py")
    script(tmp_path, "import torch")
    pair = both("train.py", cwd=tmp_path)
    same(pair)
    assert "ImportError: no such library" in pair.attached.stderr
    script(tmp_path, "import keras", "train.py")
    script(tmp_path, "def f(:", "keras.py")
    broken = both("train.py", cwd=tmp_path, options=("--name", "other"))
    assert broken.attached.stderr.startswith(broken.alone.stderr)


@pytest.mark.thorough
def test_a_python_without_dependencies_runs_uncaptured(tmp_path: Path) -> None:
    script(tmp_path, "value = 1", "torch.py")
    script(tmp_path, "import torch; print(torch.value)")
    # Without its site packages, it has neither numpy nor other dependencies.
    command = (sys.executable, "-c", "import sys; sys.path.append('.'); import train")
    done = attached(*command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "torch trainings are not captured: " in done.stderr
    assert "; install vinedresser for this Python\n" in done.stderr


TRAINING = """
    import torch

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    # More steps than it takes until the rule stops it.
    for step in range(100_000):
        loss = model(torch.ones(4, 2)).square().mean()
        if step == 5:
            loss = loss * float("nan")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.thorough
def test_a_python_without_vinedresser_is_captured(tmp_path: Path) -> None:
    venv.create(tmp_path / "own", symlinks=True)
    (packages,) = (tmp_path / "own" / "lib").glob("python*/site-packages")
    missing = ("vinedresser", "__editable__", "fastcrc", "safetensors")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(missing) and entry.suffix != ".pth":
            (packages / entry.name).symlink_to(entry)
    script(tmp_path, TRAINING)
    shell = tmp_path / "train.sh"
    shell.write_text("#!/bin/sh\nexec own/bin/python -m train\n", "utf-8")
    done = attached("bash", "train.sh", cwd=tmp_path, options=("--rule", "nonfinite"))
    assert done.returncode == 3, done.stderr
    run = open_run(tmp_path / "runs" / "run")
    assert run.status.state == "stopped"
    assert list((tmp_path / "runs" / "run" / "checkpoints").glob("step-*.safetensors"))


@pytest.mark.thorough
def test_a_script_that_fails_outside_the_active_environment_is_told_so(tmp_path: Path) -> None:
    script(tmp_path, "import torchvisions")
    done = attached("train.py", cwd=tmp_path, VIRTUAL_ENV=str(tmp_path / "own"))
    assert f"to run it in the active environment {tmp_path / 'own'}, write" in done.stderr
    named = attached(
        *(sys.executable, "train.py"),
        cwd=tmp_path,
        options=("--name", "named"),
        VIRTUAL_ENV=str(tmp_path / "own"),
    )
    assert "active environment" not in named.stderr


# A library that looks for optional packages and imports them when they are used.
PROBING = """
    import importlib
    import importlib.util

    AVAILABLE = {name: importlib.util.find_spec(name) for name in ("torch", "keras", "xgboost")}


    def load(name):
        assert AVAILABLE[name] is not None
        return importlib.import_module(name)
"""


@pytest.mark.thorough
def test_a_framework_that_was_looked_up_before_its_import_is_noticed(tmp_path: Path) -> None:
    script(tmp_path, "value = 1", "torch.py")
    script(tmp_path, PROBING, "library.py")
    script(tmp_path, "import library; print(library.load('torch').value)")
    # The attempt to attach fails without site packages, which shows that it was made.
    command = (sys.executable, "-c", "import sys; sys.path.append('.'); import train")
    done = attached(*command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert done.stderr.count("torch trainings are not captured: ") == 1


@pytest.mark.thorough
def test_a_training_of_a_library_that_looks_packages_up_is_captured(tmp_path: Path) -> None:
    script(tmp_path, PROBING, "library.py")
    script(
        tmp_path,
        """
        import library

        torch = library.load("torch")
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        # It wraps the model, and the training must not be taken for that of the wrapper.
        torch.export.export(model, (torch.ones(4, 2),))
        for _ in range(3):
            model(torch.ones(4, 2)).square().mean().backward()
            optimizer.step()
        """,
    )
    done = attached("train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = open_run(tmp_path / "runs" / "run")
    assert run.scalars("losses")["losses/loss"].steps.tolist() == [0, 1, 2]
    assert list(run.info.modules) == ["Linear"]


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["enable", "disable"])
def test_garbage_is_collected_as_the_script_sets_it(tmp_path: Path, setting: str) -> None:
    script(
        tmp_path,
        """
        import gc, sys
        getattr(gc, sys.argv[1])()
        import torch
        print(gc.isenabled(), gc.get_threshold(), gc.get_freeze_count())
        """,
    )
    pair = both("train.py", setting, cwd=tmp_path)
    assert pair.attached.stdout == pair.alone.stdout
    assert pair.alone.stdout.startswith(str(setting == "enable"))


@pytest.mark.thorough
def test_no_additional_modules_are_imported_at_the_start(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        import sys
        print(*sorted(sys.modules), sep="\\n")
        """,
    )
    pair = both("train.py", cwd=tmp_path)
    assert isinstance(pair.alone, subprocess.CompletedProcess)
    # Built in; it tells the supervisor where the process stands.
    assert pair.attached.stdout.replace("faulthandler\n", "") == pair.alone.stdout
