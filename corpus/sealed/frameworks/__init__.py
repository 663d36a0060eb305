"""Sealed families of Keras, Lightning and XGBoost."""
