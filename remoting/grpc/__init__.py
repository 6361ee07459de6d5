"""gRPC for the official clients of RocketMQ 5: HTTP/2, calls, and the messages of their contract.

In the order of the data flow: bytes of a socket → ``http2`` (frames and streams, by the library h2) → ``call`` (one
call: messages, deadline, status) → ``protobuf`` with the table ``messages`` (bytes to typed messages) → a service of
the broker (``broker/grpc``), which asks as a client through ``inner_connection`` → the broker's usual queues.

Only ``http2`` imports h2 (extra ``pocketmq[grpc]``). What a message means does not belong here.
"""
