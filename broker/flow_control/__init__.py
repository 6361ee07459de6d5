"""How the broker protects itself, and how it says so.

``admission`` decides on the event loop, at once, whether a request may enter its queue. ``fast_failure`` looks every
10 ms at the requests that wait and answers those that waited too long. ``busy_answers`` makes RocketMQ's answers with
cause, stored or not, and when to come back; ``put_outcome`` turns the store's put statuses into them, at admission and
behind it, for sends, decisions and staged transactions alike. ``refusal_stats`` counts each refusal by cause and logs
them at a bounded rate.

The signal "page cache busy" comes from ``store.commitlog.append_lock``; the queues belong to ``request``. Texts,
codes and cures stand in ``pocketmq.common.refusals``.
"""
