"""Who is at the other end of a connection: credentials, RocketMQ's signatures, proofs of native connections, TLS.

In order: ``credentials`` (a user's keys on the client's side), ``signature`` (RocketMQ's HMAC-SHA1 of each request),
``proof`` (the native protocol's proof, once a connection). What a user may do is decided in ``pocketmq.auth``, from the
permissions in ``remoting.protocol.access``.
"""
