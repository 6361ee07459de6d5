"""How a running broker reports its state.

    sources          the objects that metrics are read from;  observation   builds all that watches one run
    registry         a metric: one row, shown in many places
    request_metrics, store_metrics, service_metrics, ha_metrics, rocketmq_metrics
                     the rows;  metrics   all of them, and ``/metrics``
    figures          by topic, group and kind of client, in rounds: topic_figures, group_figures, label_text
    metrics_table    the tables of docs/metrics.md, made from the rows
    health           the reports of ``/health``, ``/ready`` and ``/live``;  connz   that of ``/connz``
    telemetry        the JSON in the runtime table of RocketMQ's admin tools
    interval_log, watermarks, slow_requests, thread_dump   events of the log, at a limited rate

The pages are served by ``remoting.http_server``; ``observation`` has their routes. Counting happens in ``stats`` and in
the packages that do the work; nothing here runs on the path of a message.
``cli.doctor`` and ``pipeline.jobs.flow_control`` draw conclusions from these metrics.
"""
