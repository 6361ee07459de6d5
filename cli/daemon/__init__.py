"""The servers: ``daemon`` loads settings, opens logs, starts loop and brokers, handles signals and prints the
ready line; ``daemon_commands`` and ``cluster`` are its commands. ``descriptors`` reserves file descriptors for the
store, ``recovery_progress`` shows the progress of a long recovery.
"""
