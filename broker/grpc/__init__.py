"""The gRPC entrance: RocketMQ 5's official clients at this broker's usual queues.

What flows through, in order: a call with its metadata → ``callers`` (whose client it is, and whether the signature is
right) → a service (``routes``, ``sends``, ``transactions``, ``receives``, ``settlement``, ``telemetry``), which checks
what RocketMQ's proxy checks → a request of RocketMQ's, asked through the client's ``InnerConnection`` → the same
admission, queues, processors, limits and refusals as for every other client → ``statuses`` (the answer's code and
text).

``clients`` knows who is here and what each client has said of itself, ``renewal`` extends the time of messages whose
clients work on them, ``messages`` turns records into messages, ``methods`` is the table of all services.

Nothing here stores, reads or decides by itself; what RocketMQ's clients send over remoting does not belong here.
"""
