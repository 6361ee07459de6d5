"""Staged transactions: many messages over several brokers that appear all or none, and once however often they are
sent. ``staged_transaction`` commits, ``chunk_writer`` cuts Arrow batches into chunks of about one MiB and keeps several
in flight, ``chunk_target`` sends one and retries it. The broker's half is ``broker.staged``.
"""
