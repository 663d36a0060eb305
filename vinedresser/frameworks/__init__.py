"""What knows a framework and is no feature: names, nesting, tensors as files, random states."""
