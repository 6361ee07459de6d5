"""Commands that show and change topics, groups, queue locks and replication. Each parses options, calls
``client.admin`` and prints a table or JSON.
"""
