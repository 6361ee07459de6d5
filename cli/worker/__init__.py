"""``pocketmq worker MODULE:CONSUMER``: runs the consumers of an application until SIGTERM.

loading      MODULE:CONSUMER → consumers
running      consumers, in this process
processes    several processes, restarted when they end, started again when files change
command      options
"""
