"""The parts of scenarios: real brokers with a disk that fails on request (``cluster``), cables that can be cut,
open-loop load, one ``phase`` with its faults, ``replicas`` with slaves, members of ordered groups, and ``watch``, which
records a broker's own metrics and log. ``original`` is RocketMQ's serial wait for a slave, for comparison.
"""
