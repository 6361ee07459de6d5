"""How many calls a message costs: ``python -m bench calls``.

Counts of Python and C calls do not depend on the machine or its load, so that two trees can be compared anywhere and a
test can hold an upper bound on each. In the order of the flow: ``cases`` runs each load on a broker and a client in
processes of their own (``child`` and ``client``), whose calls ``counter`` counts; ``control`` switches the counting
from outside; ``rocketmq_client`` writes frames as RocketMQ's Java client does; ``command`` prints the table; ``bounds``
holds the upper bounds.
"""
