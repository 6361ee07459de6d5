"""Flow control seen from logs and traces: what was refused when, why, and what cures it.

Lives here: files → facts (``files``, ``facts``, ``log_reader``), facts → tables
in Spark (``reading``, ``minutes``, ``evidence``), evidence → chain of causes (``chain`` and the rules beside it), all
of it → a page (``plots``, ``page``).
"""
