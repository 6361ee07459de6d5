"""Work queues: messages received for a time and acknowledged one by one (RocketMQ's POP).

simple_consumer   ``SimpleConsumer``: receive, ack, nack, extend, ``async for``
popped_message    a message with its receipt handle
pop_wire          pops and acknowledgements as requests, native or as RocketMQ's clients send them
pop_lanes         receives of many tasks as one request a broker, acknowledgements of one loop turn as another
"""
