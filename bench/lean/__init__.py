"""Single messages beside the peers: ``python -m bench lean``, the table of goals for one message at a time.

``pinning`` chooses the cores, ``echo`` is the floor, ``lineup`` starts the servers and clients on them, ``cases``
measures in alternating rounds, ``goals`` holds what is wanted, ``command`` prints both.
"""
