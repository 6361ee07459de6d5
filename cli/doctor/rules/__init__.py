"""From metrics to findings, one module an area: the order of the data flow is ``refusals``, ``send``, ``slow_stage``,
``store``, ``replication``, ``reads``, ``settings``. Rules are pure functions of ``doctor.broker_metrics``;
``diagnosis`` asks them in turn.
"""
