"""Collections: named sets of tensors, and when each is saved."""
