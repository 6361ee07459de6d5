"""Spark reading and writing topics."""
