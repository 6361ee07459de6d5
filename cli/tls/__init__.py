"""``pocketmq tls``: certificates for a trial, and what a certificate says.

In order: ``command`` (options and output), ``making`` (keys and certificates).
"""
