"""Messages without their duplicates. Used by the job ``dedupe``."""
