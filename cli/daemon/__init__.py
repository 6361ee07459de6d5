"""Processes that serve: ``daemon`` loads settings, opens logs, starts loop and brokers, handles signals and prints the
ready line; ``daemon_commands`` and ``cluster`` are its commands. ``descriptors`` reserves file descriptors for the
store, ``recovery_progress`` shows how far a long recovery is.
"""
