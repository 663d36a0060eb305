"""Run by every Python that a run starts, before its script: has trainings captured.

Only the standard library is used, and none of it that Python has not loaded anyway: what trains
nothing shall not wait for us. When a framework has been imported, the part of
`vinedresser.capture.attach` that knows it is loaded, and looks for a training.

The directory of this file leaves `sys.path` again, and a `sitecustomize` of the user's own, which
it hides, is run in its turn.
"""

from __future__ import annotations

import os
import sys

__all__: list[str] = []

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = "vinedresser.capture.attach"
# What finds trainings of a framework, by the framework's package.
_FINDERS = {
    "torch": "torch_training",
    "keras": "keras_training",
    "xgboost": "xgboost_training",
}
_Spec: type = type(sys.__spec__)


class _WatchedSpec(_Spec):  # type: ignore[misc]
    """The spec of a module, which tells when the module has been imported.

    The import system says so by setting ``_initializing``. A loader of our own would stand in the
    traceback of every import that fails.
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
    """First of the finders of modules: passes on what the others find."""

    def __init__(self) -> None:
        self._waiting = set(_FINDERS)

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """Return the spec of a framework, to be told of its import; None for all else."""
        if name not in self._waiting:
            return None
        self._waiting.discard(name)
        for finder in sys.meta_path:
            ours = finder is self  # type: ignore[comparison-overlap]
            find = None if ours else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                if type(spec) is _Spec:
                    spec.__class__ = _WatchedSpec
                return spec
        # A later import may find it.
        self._waiting.add(name)
        return None


def _attach(framework: str) -> None:
    """Have trainings of a framework looked for from now on."""
    try:
        _import_package()
        name = f"{_PACKAGE}.{_FINDERS[framework]}"
        __import__(name)
        sys.modules[name].attach()
    except (ImportError, SyntaxError) as error:
        sys.stderr.write(
            f"vinedresser: what {sys.executable} trains with {framework} is not captured: {error}\n"
        )


def _import_package() -> None:
    """Import our package, which this Python may not have installed."""
    try:
        __import__("vinedresser")
    except ImportError:
        root = os.path.abspath(os.path.join(_HERE, *[os.pardir] * 4))
        sys.path.append(root)
        try:
            __import__("vinedresser")
        finally:
            sys.path.remove(root)


def _chain() -> None:
    """Run the sitecustomize that this one hides, or fail as where there is none."""
    sys.path[:] = [entry for entry in sys.path if entry != _HERE]
    ours = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    finally:
        # The import system wants it there until we are through.
        sys.modules.setdefault("sitecustomize", ours)


# Under its full name it is only looked at.
if __name__ == "sitecustomize":
    if os.environ.get("VINEDRESSER_RUN") and os.environ.get("VINEDRESSER_ATTACH"):
        sys.meta_path.insert(0, _Imports())  # type: ignore[arg-type]
    _chain()
