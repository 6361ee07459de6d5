"""Limits on what one peer may ask of a server in a second, and how often it may connect.

``config`` has the settings and ``user_limits`` what a user may have instead; ``token_bucket`` says when a peer has had
its share; ``quota`` is what one connection carries, made of the buckets of its client, its address and its user;
``server_limits`` keeps those buckets, and counts connections.

A server without such settings gives its connections no quota, and pays for none. Limits on memory, on queues and on the
number of connections are elsewhere: they protect a server from all its peers together.
"""
