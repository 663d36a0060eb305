"""The extras that provide optional packages."""

from __future__ import annotations

from types import MappingProxyType

__all__ = ["EXTRAS", "missing_package"]

# The extra of each optional package, by the name under which it is imported.
EXTRAS = MappingProxyType(
    {
        "boto3": "s3",
        "botocore": "s3",
        "captum": "captum",
        "cmaes": "sweeps",
        "cryptography": "live",
        "distributed": "dask",
        "duckdb": "sql",
        "fastapi": "flows",
        "keras": "tensorflow",
        "lightning": "lightning",
        "mlflow": "flows",
        "onnx": "onnx",
        "opentelemetry": "otel",
        "optuna": "sweeps",
        "prefect": "flows",
        "prefect_dask": "dask",
        "prefect_ray": "ray",
        "ray": "ray",
        "safetensors": "torch",
        "scipy": "drift",
        "sklearn": "sklearn",
        "sqlalchemy": "flows",
        "starlette": "live",
        "tensorflow": "tensorflow",
        "textual": "terminal",
        "torch": "torch",
        "uvicorn": "live",
        "xgboost": "xgboost",
    }
)


def missing_package(error: ModuleNotFoundError) -> str | None:
    """Return a sentence about an optional package that is not installed; None for any other."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return f"{package} is not installed: pip install 'vinedresser[{EXTRAS[package]}]'"
