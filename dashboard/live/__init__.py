"""What moves by itself: pages that change with the cluster, and messages as they arrive, as server-sent events.

A viewer has no queue of pages: a slow one gets the newest page when it has taken the last. The tail's queue is short
and counts what it leaves out.
"""
