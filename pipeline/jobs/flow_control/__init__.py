"""Flow control in logs and traces: refusals by minute, their causes and their cures.

Lives here: files → facts (``files``, ``blocks``, ``log_reader``, ``facts``, ``rocketmq``), facts → tables in Spark
(``reading``, ``minutes``, ``evidence``) or in one process (``tally``), evidence → chain of causes (``chain`` and the
rules), all of it → a page (``plots``, ``page``).
"""
