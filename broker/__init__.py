"""The broker daemon: requests in, records in the store, answers out.

The packages in the order of the data flow; each imports only packages named before it:

    stats, request                             counters and stage times; tasks, queues, executors, the request table
    topic, group, delay, flow_control, lock    tables that requests are checked against; refusals
    ha, transaction                            replication of one run; half messages and their decisions
    send, staged, pull                         messages in, staged transactions, messages out
    metrics, admin                             reports on the broker; requests of administrators
    assembly                                   builds every object of one run; ``app`` starts and stops it

Files and logs on disk belong to ``store``, frames and codecs to ``remoting``, command lines and signals to ``cli``.
"""
