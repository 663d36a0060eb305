"""The guard of a torch training: it looks at the gradients before each update."""
