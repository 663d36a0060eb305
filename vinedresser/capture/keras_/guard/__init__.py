"""The guard of Keras models: gradients that are not finite are seen before the update."""
