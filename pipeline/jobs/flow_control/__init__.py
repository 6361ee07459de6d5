"""Flow control in logs and traces: refusals by minute, their causes and their cures.

Lives here: files → facts (``files``, ``facts``, ``log_reader``), facts → tables in Spark (``reading``, ``minutes``,
``evidence``), evidence → chain of causes (``chain`` and the rules), all of it → a page (``plots``, ``page``).
"""
