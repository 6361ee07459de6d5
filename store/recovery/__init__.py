"""Recovery of the files that the last run left on the disk.

    recovery     the steps, in order; safe to be killed at any of them
    left_buffers, surviving_buffers   what a dead process has left in its write buffers goes to the log first
    log_scan     verifies the log from a checkpoint on
    scan_window, suspects   reads it; records that need a second look
    torn_tail    tells unfinished appends from damage
    quarantine   copies of bytes that are cut off or found damaged

Repair of a store without a broker is ``store.offline``.
"""
