"""The line that says why, out of a program's standard error."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vinedresser.infra.supervise.supervisor.crash_reason import CrashReason

CHAINED = """
class Odd(Exception):
    pass
try:
    raise KeyError("first")
except KeyError:
    raise Odd("second\\nwith a second line")
"""
NOISY_END = """
import atexit, sys
atexit.register(lambda: print("cleaning up", file=sys.stderr))
print("warming up", file=sys.stderr)
raise RuntimeError("CUDA out of memory")
"""
# As Keras does for an error in a layer, with bold text, and TensorFlow for one in a graph.
LAYER = """raise ValueError(
    "Exception encountered when calling Dense.call().\\n\\n\\x1b[1mbad shape\\x1b[0m\\n\\n"
    "Arguments received by Dense.call():\\n    OtherError: no"
)"""
GRAPH = """raise TypeError(
    'in user code:\\n\\n    File "train.py", line 3, in step  *\\n        y = model(x)\\n\\n'
    "    ValueError: Exception encountered when calling Dense.call().\\n    \\n"
    "    \\x1b[1mbad shape\\x1b[0m\\n    \\n    Arguments received by Dense.call():\\n"
)"""
PLAIN_GRAPH = """raise TypeError(
    'in user code:\\n\\n    File "train.py", line 3, in step  *\\n        y = x + "a"\\n\\n'
    "    KeyError: 'a'\\n"
)"""


def reason_of(code: str) -> str:
    """Return the reason found in what Python really prints."""
    result = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False
    )
    reason = CrashReason()
    for line in result.stderr.split("\n"):
        reason.feed([line])
    return reason.text


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise ValueError('bad')", "ValueError: bad"),
        ("assert False", "AssertionError"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        (CHAINED, "Odd: second"),
        (NOISY_END, "RuntimeError: CUDA out of memory"),
        (LAYER, "ValueError: bad shape"),
        (GRAPH, "ValueError: bad shape"),
        (PLAIN_GRAPH, "KeyError: 'a'"),
        ("x = (", "SyntaxError: '(' was never closed"),
        ("import sys; sys.exit('no data')", "no data"),
        ("import sys; sys.exit(3)", ""),
    ],
)
def test_of_what_python_prints(code: str, expected: str) -> None:
    assert reason_of(code) == expected


def test_of_a_rank_of_distributed_torch() -> None:
    reason = CrashReason()
    reason.feed(
        [
            "[rank1]: Traceback (most recent call last):",
            '[rank1]:   File "train.py", line 3, in <module>',
            "[rank1]: ValueError: bad",
            "terminating",
        ]
    )
    assert reason.text == "ValueError: bad"


@pytest.mark.parametrize(
    "raised",
    [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "subprocess.CalledProcessError: Command 'python' returned non-zero exit status 1.",
    ],
)
def test_a_launcher_does_not_hide_the_error_of_its_process(raised: str) -> None:
    reason = CrashReason()
    of_launcher = ["Traceback (most recent call last):", '  File "run.py", line 3', raised, "====="]
    reason.feed(of_launcher)
    assert reason.text == raised.strip()
    reason = CrashReason()
    reason.feed(["[rank1]: Traceback (most recent call last):", "[rank1]: ValueError: bad"])
    reason.feed(of_launcher)
    assert reason.text == "ValueError: bad"


def test_it_is_short() -> None:
    reason = CrashReason()
    reason.feed(["x" * 10_000, "   "])
    assert reason.text == "x" * 500
