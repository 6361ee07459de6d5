"""Topics as tables for Spark (its own issue; nothing here yet)."""
