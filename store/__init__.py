"""The log on disk: segments, commit log, consume queues, key index, flush, dispatch, recovery. Knows no socket."""
