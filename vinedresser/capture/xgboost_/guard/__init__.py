"""The guard of custom objectives of XGBoost."""
