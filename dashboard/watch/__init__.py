"""The watched cluster: read once for all viewers, while there are any.

``consume_stats`` reads the bulk answer on all groups, ``state`` holds what is known, ``reading`` asks the questions,
``cluster_watch`` asks them in turn, ``watches`` has one watch for each user.
"""
