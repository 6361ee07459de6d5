"""The disk and the machine's memory, behind protocols.

``file_system`` defines the protocols for every access to files; ``os_file_system`` is the real one, and tests pass
simulated and faulty ones. ``file_cache`` keeps a bounded number of files open. ``memory_lock`` locks and prepares pages
of RAM.

The packages above decide the content of the files. Faults for scenarios are in ``testing.faults``.
"""
