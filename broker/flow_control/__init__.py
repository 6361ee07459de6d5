"""How the broker protects itself from overload, and what it answers then.

``admission`` decides on the event loop, at once, whether a request may enter its queue. ``fast_failure`` checks
waiting requests every 10 ms and answers those that waited too long. ``busy_answers`` makes RocketMQ's answers, with
cause, stored or not, and when to retry; ``put_outcome`` turns the store's put statuses into them, at admission and
after it, for sends, decisions and staged transactions. ``refusal_stats`` counts refusals by cause and logs them at a
bounded rate.

The signal "page cache busy" comes from ``store.commitlog.append_lock``; the queues belong to ``request``. Texts,
codes and cures are in ``pocketmq.common.refusals``.
"""
