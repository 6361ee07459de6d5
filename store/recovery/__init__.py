"""Recovery of the files that the last run left on the disk.

    recovery     the steps, in order; safe to be killed at any of them
    log_scan     verifies the log from a checkpoint on
    scan_window, suspects   reads it; records that need a second look
    torn_tail    tells unfinished appends from damage
    quarantine   copies of bytes that are cut off or found damaged

Repair of a store without a broker is ``store.offline``.
"""
