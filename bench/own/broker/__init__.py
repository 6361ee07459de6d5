"""A whole broker, in a process of its own, under one load."""
