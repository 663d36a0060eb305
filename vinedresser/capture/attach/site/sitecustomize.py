"""Start of the capture in every Python process of a run; runs before the script.

Only standard library modules that Python has already loaded, or has built in, are imported, so
processes without a training start as fast as before. After the import of a framework, its module in
`vinedresser.capture.attach` is loaded and looks for trainings.

The directory of this file is removed from `sys.path`, and a `sitecustomize` of the user, which it
hides, is run.
"""

from __future__ import annotations

import os
import sys

__all__: list[str] = []

_HERE = os.path.dirname(os.path.abspath(__file__))
# Module that detects the trainings of a framework, by the framework's package.
_FINDERS = {
    "torch": "vinedresser.capture.attach.torch_training",
    "keras": "vinedresser.capture.attach.keras_training",
    "mlflow": "vinedresser.capture.attach.mlflow_run",
    "lightning.pytorch": "vinedresser.capture.attach.lightning_training",
    "pytorch_lightning": "vinedresser.capture.attach.lightning_training",
    "xgboost": "vinedresser.capture.attach.xgboost_training",
}
# The modules that look at a script for another purpose, by the variable that asks for it.
_OTHERS = {
    # A short trial of a training is captured, and watched besides.
    "VINEDRESSER_PREFLIGHT": {
        "torch": "vinedresser.preflight.child",
        "keras": "vinedresser.preflight.keras_child",
        "lightning.pytorch": _FINDERS["lightning.pytorch"],
        "pytorch_lightning": _FINDERS["pytorch_lightning"],
    },
    "VINEDRESSER_REPLAY": {"torch": "vinedresser.replay.script.child"},
    "VINEDRESSER_REPLAY_KERAS": {"keras": "vinedresser.replay.keras_.script.child"},
}
for _variable, _finders in _OTHERS.items():
    if os.environ.get(_variable):
        _FINDERS = _finders
# Frameworks that have not been imported yet.
_waiting = set(_FINDERS)
_Spec: type = type(sys.__spec__)


class _WatchedSpec(_Spec):  # type: ignore[misc]
    """The spec of a module that reports the end of its import.

    The import system signals it by setting ``_initializing``. A custom loader would add a frame to
    the traceback of every failed import. A spec that is only looked up, as by
    `importlib.util.find_spec`, reports nothing.
    """

    name: str

    @property
    def _initializing(self) -> bool:
        return bool(self.__dict__.get("_initializing", False))

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        self.__dict__["_initializing"] = value
        if not value:
            self.__class__ = _Spec
            if self.name in sys.modules:
                _attach(self.name)


class _Imports:
    """The first finder on `sys.meta_path`; delegates to the others."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """Return a watched spec for a framework; None for any other module."""
        if name not in _waiting:
            return None
        for finder in sys.meta_path:
            own = finder is self  # type: ignore[comparison-overlap]
            find = None if own else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                if type(spec) is _Spec:
                    spec.__class__ = _WatchedSpec
                return spec
        return None


def _attach(framework: str) -> None:
    """Start looking for trainings of a framework."""
    _waiting.discard(framework)
    _start(_FINDERS[framework], f"{framework} trainings")


def _start(name: str, what: str) -> None:
    """Start a module of `vinedresser.capture.attach`, which captures what the text says."""
    # Built in; a process without a framework does not need it.
    import gc

    collects = gc.isenabled()
    # A collection in the middle would take longer than the import, since it visits all objects of
    # the framework.
    gc.disable()
    try:
        _import_package()
        __import__(name)
        sys.modules[name].attach()
    except (ImportError, SyntaxError, AttributeError) as error:
        # The last one is raised by other versions of a framework.
        sys.stderr.write(
            f"vinedresser: {sys.executable}: {what} are not captured: {error}; "
            "install vinedresser for this Python\n"
        )
    finally:
        if collects:
            gc.enable()


def _import_package() -> None:
    """Import vinedresser, which may not be installed in this Python.

    The only library that it needs besides a framework and numpy is then that of the Python that
    started the run; it fits a Python of the same version.
    """
    try:
        __import__("vinedresser")
    except ImportError:
        _import_from(os.path.abspath(os.path.join(_HERE, *[os.pardir] * 4)), "vinedresser")
        try:
            __import__("fastcrc")
        except ImportError:
            _import_from(os.environ["VINEDRESSER_ATTACH"], "fastcrc")


def _import_from(directory: str, name: str) -> None:
    """Import a module or package from a directory, and nothing else."""
    sys.path.append(directory)
    try:
        __import__(name)
    finally:
        sys.path.remove(directory)


def _tell_stacks() -> None:
    """Let the supervisor ask where this process stands, if it has started it."""
    supervisor, _, descriptor = os.environ.get("VINEDRESSER_STACKS", "").partition(":")
    if supervisor != str(os.getppid()):
        return
    # Built in, as all that this module imports.
    import _signal  # type: ignore[import-not-found]
    import faulthandler

    try:
        # Not all threads: the frames of one that runs change while they are read.
        faulthandler.register(_signal.SIGURG, int(descriptor), all_threads=False)
    except (OSError, ValueError, RuntimeError):
        # Without the descriptor, the supervisor does not ask.
        return


def _chain() -> None:
    """Run the sitecustomize that this one hides, or fail as if there was none."""
    sys.path[:] = [entry for entry in sys.path if entry != _HERE]
    this = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    finally:
        # The import system requires the entry until this module is imported.
        sys.modules.setdefault("sitecustomize", this)


# Under its full name it is only inspected.
if __name__ == "sitecustomize":
    _asked = any(os.environ.get(name) for name in ("VINEDRESSER_RUN", *_OTHERS))
    if _asked and os.environ.get("VINEDRESSER_ATTACH"):
        sys.meta_path.insert(0, _Imports())  # type: ignore[arg-type]
        _tell_stacks()
        if os.environ.get("VINEDRESSER_METRICS"):
            _start("vinedresser.capture.attach.printed_metrics", "printed metrics")
    _chain()
