"""What a running broker says about itself.

    sources          what metrics are read from;  observation   builds everything that watches one run
    registry         what a metric is: one row, shown in many places
    request_metrics, store_metrics, service_metrics, ha_metrics   the rows;  metrics   all of them, and ``/metrics``
    metrics_table    the tables of docs/metrics.md, made from the rows
    health           what ``/health`` says;  metrics_server   the HTTP port
    telemetry        the JSON in the runtime table of RocketMQ's admin tools
    interval_log, watermarks, slow_requests, thread_dump   what goes to the log, at which pace

Counting happens in ``stats`` and in the packages that do the work; nothing here runs on the path of a message.
Conclusions from these metrics are drawn by ``cli.doctor`` and ``pipeline.jobs.flow_control``.
"""
