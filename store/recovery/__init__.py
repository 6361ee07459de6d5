"""What a start does with what the last run left on the disk.

    recovery     the steps, in order; safe to be killed at any of them
    log_scan     verifies the log from a checkpoint on
    scan_window, suspects   reads it; records that need a second look
    torn_tail    which bad bytes are an unfinished append, and which are damage
    quarantine   copies of whatever is cut off or found damaged

Repair of a store without a broker is ``store.offline``.
"""
