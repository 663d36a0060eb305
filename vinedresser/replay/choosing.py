"""Which module replays a step, by framework and by what builds the step."""

from __future__ import annotations

from typing import Any

from vinedresser.errors import ConfigError


def stepping_of(framework: str, snapshot: str, factory: str | None, script: str | None) -> Any:
    """Return the module that replays steps of a framework, with a factory or in a script.

    Raises:
        ConfigError: both are missing.
    """
    if script is not None:
        if framework == "keras":
            from vinedresser.replay.keras_.script import stepping as keras_script_stepping

            return keras_script_stepping
        from vinedresser.replay.script import stepping as script_stepping

        return script_stepping
    if framework == "keras":
        from vinedresser.replay.keras_ import stepping as keras_stepping
        from vinedresser.replay.keras_.factory import NEEDED as KERAS_NEEDED

        if factory is None:
            raise ConfigError(f"{snapshot}: {KERAS_NEEDED}")
        return keras_stepping
    if framework == "xgboost":
        from vinedresser.replay.xgboost_ import stepping as objective_stepping

        if factory is None:
            raise ConfigError(f"{snapshot}: {objective_stepping.NEEDED}")
        return objective_stepping
    from vinedresser.replay import stepping
    from vinedresser.replay.factory import NEEDED

    if factory is None:
        raise ConfigError(
            f"{snapshot}: add --script FILE, the script that trained (its arguments after --). If "
            f"that does not do, {NEEDED}"
        )
    return stepping
