"""Access control: who may ask a broker or a name server for what. RocketMQ 5's model (ACL 2.0).

A request comes from a user (``users``), who has policies (``policies``; ``rules`` looks them up); ``auth_table`` holds
both and ``auth_file`` keeps them on disk. ``needed`` finds the resources that a request names, ``session`` remembers
what a user may do from one address, and ``guard`` decides: it is what a server asks before any handler sees a request;
``trial`` says what it would decide. The permission that each request code needs stands in ``remoting.protocol``;
signatures and proofs in ``remoting.security``. ``http_access`` asks the same users at the HTTP port.

Both servers use it: users and policies of a broker are those of ``config/auth.json`` in its store; a name server has a
file of its own.
"""
