"""The servers: ``daemon`` loads settings, opens logs, starts loop and brokers, handles signals and prints the
ready line; ``daemon_commands`` and ``cluster`` are its commands. ``descriptors`` reserves file descriptors for the
store, ``recovery_progress`` shows the progress of a long recovery.

``cluster --masters N``, in order: ``masters_plan`` (names, ports, directories), ``masters`` (ready output, signals,
end), ``supervisor`` (start, restart, stop) with ``restart_policy``, ``children`` (the processes) with
``bound_to_parent`` (how they end with the command), ``labelled_log`` (one log of all).
"""
