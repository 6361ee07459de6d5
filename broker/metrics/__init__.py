"""What a running broker tells about itself.

    observation      builds everything that watches one run
    metrics, ha_metrics, transaction_metrics, reply_metrics   Prometheus
    health           what ``/health`` says;  metrics_server   the HTTP port
    telemetry        the runtime table of RocketMQ's admin tools
    interval_log, watermarks, slow_requests, thread_dump   what goes to the log, at which pace

Counting happens in ``stats`` and in the packages that do the work; nothing here runs on the path of a message.
Conclusions from these figures are drawn by ``cli.doctor`` and ``pipeline.jobs.flow_control``.
"""
