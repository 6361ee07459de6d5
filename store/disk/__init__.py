"""The disk and the machine's memory, as arguments.

``file_system`` defines the protocols through which the store does everything with files; ``os_file_system`` is the
real one, and tests pass simulated and faulty ones. ``file_cache`` keeps a bounded number of files open.
``memory_lock`` locks and prepares pages of RAM.

What the files contain is decided by the packages above. Faults for scenarios are in ``testing.faults``.
"""
