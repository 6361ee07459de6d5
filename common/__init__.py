"""What every layer shares: the record format, messages and properties, errors, clock and runner, settings."""
