"""The TOML files of experiments and sweeps."""
