"""PocketMQ beside other brokers in one run: what a case is, the fleet of servers and clients, the client process, the
machine's floors, the suite that interleaves them.
"""
