"""Rows of a table sent to a topic in their order, at a rate or in their own time. Used by the job ``replay``."""
