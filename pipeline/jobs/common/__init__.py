"""Code shared by the jobs: their commands (``command``), the Spark session with explained errors (``session``),
``inputs``, the lookup of ``topics`` before Spark starts, and output (``console``).
"""
