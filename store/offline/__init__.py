"""Reading, checking and repairing a store directory without a broker."""
