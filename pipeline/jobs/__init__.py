"""Jobs on topics that run in Spark: each a command, ``pocketmq pipeline NAME``, and a script for ``spark-submit``.

A module of this package named like a job holds its options (a ``Job``) and imports neither Spark nor NumPy; what the
job does is imported when it runs.
"""
