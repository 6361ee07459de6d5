"""Consume queues: 20 bytes for each message of a queue, which give its position in the commit log.

``consume_queue`` is one queue, its tail in memory; ``consume_queues`` has all of them, writes them and bounds their
memory. ``get`` reads messages for a pull: offset, filter, limits, coalesced reads; ``get_run`` reads those of several
queues that lie interleaved in the log. ``time_index`` finds the offset for a point in time. ``deleted_topics`` records
deleted topics with the log's end at their deletion, so that a restart does not bring them back.

Entries come from ``store.dispatch``; how far groups have read is kept by ``broker.group``.
"""
