"""The way to brokers and name servers, shared by every producer and consumer of a process.

    name_servers    several, one in use, the next when it fails
    route           routes of topics, cached and refreshed
    instance        one client id: connections, heartbeats, routes, periodic tasks
    reply_table     requests that wait for the replies that brokers push
    rebalance       RocketMQ's allocation strategies, and ``MessageQueue``
    refusal_facts   the fields beside the text of a refusal
    rocketmq_limits features that a RocketMQ broker lacks, logged once

Frames and sockets belong to ``remoting``.
"""
