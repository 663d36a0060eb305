"""XGBoost: custom objectives."""
