"""Reading at the caller's pace and positions.

``pull_consumer`` is the face; ``pull_round`` pulls from all brokers that hold the queues; ``pull_wire`` speaks the
requests, native or RocketMQ's; ``broker_connections`` chooses master or slave; ``offsets`` holds a group's positions;
``subscription`` parses tags. Groups that share queues and call handlers are ``client.push``.
"""
