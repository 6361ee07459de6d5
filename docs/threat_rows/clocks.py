"""The wall clock: every function that asks for it, and what a clock that is set does there.

Waits, time-outs, back-offs, leases within a process and ages are counted by monotonic time, or by ``SteadyTime``: they
are not here.
"""

from typing import Final

from docs.threat_rows.row import Row

_SHIM = "tests/e2e/test_clock_steps.py::test_delays_pass_as_they_should"
_LEVELS = "tests/broker/delay/test_delay_service.py::test_a_level_keeps_its_delay_whatever_the_clock_does"

CLOCKS: Final = [
    Row(
        "broker/send/recall.py Recalls.plan",
        "whether the message of a recall still waits; the time of the record",
        "a wrong clock refuses recalls, or takes those of messages that have been delivered, which changes nothing",
        "tests/broker/stories/test_recall.py::test_a_handle_that_cannot_be_used_is_refused",
    ),
    Row(
        "client/simple/pop_wire.py PopWire.pop; client/simple/simple_consumer.py SimpleConsumer._subscription",
        "tell the broker when a pop was asked for, and the version of a subscription",
        "a broker of ours takes a wrong time for now; versions only order",
        "tests/broker/stories/test_pop.py::test_a_pop_that_waits_in_vain_is_answered_in_time_and_at_the_stop",
    ),
    Row(
        "broker/grpc/callers.py _is_of_now",
        "use a signature that was seen long ago; a client whose clock is wrong",
        "26 hours: clients write local time as if it were UTC; only TLS protects a signature",
        "tests/broker/grpc/test_users.py::test_whoever_cannot_show_who_it_is_is_refused",
    ),
    Row(
        "broker/grpc/renewal.py Renewal.step; broker/grpc/sends.py Sends._check;"
        " broker/grpc/telemetry.py Telemetry._settle Telemetry.heartbeat",
        "a clock that is set while messages are out",
        "handles hold times of the wall clock: a round more, or a delivery more; delays have their limit ahead;"
        " versions of subscriptions",
        "tests/broker/grpc/test_renewal.py::test_what_ends_soon_is_renewed_by_longer_and_longer_steps"
        " tests/broker/grpc/test_calls.py::test_a_message_that_is_not_legal_is_not_stored",
    ),
    Row(
        "broker/pop/pop_processor.py PopProcessor._deadline_ns",
        "a client whose clock is wrong says when it asked",
        "a time of the future, or older than the poll, counts as now; the hold has its own limit",
        "tests/broker/stories/test_pop.py::test_a_pop_that_waits_in_vain_is_answered_in_time_and_at_the_stop",
    ),
    Row(
        "remoting/security/tls_files.py TlsFiles._check TlsFiles._warn_of_ends",
        "a certificate that has ended, or has not begun, by a wrong clock",
        "the start is refused and says so; a running server only warns: its clients judge for themselves",
        "tests/remoting/security/test_tls_files.py::test_a_certificate_out_of_its_time_stops_the_start"
        " tests/remoting/security/test_tls_files.py::test_an_end_is_warned_of_once_a_step",
    ),
    Row(
        "common/clock.py SystemClock.now_ms SteadyTime.__init__ SteadyTime.take_step",
        "the source; a start with a wrong clock counts from it",
        "a step is what the wall clock has more than the time that has passed, from one second on",
        f"tests/common/test_clock.py::test_it_passes_and_does_not_jump {_LEVELS}",
    ),
    Row(
        "store/commitlog/commit_log.py CommitLog._append_locked; store/short_append.py ShortAppend.__init__",
        "store times of the past, or of the year 2046, after which no later ones come",
        "a store time never goes back; ages are judged by the time that has passed, not by store times",
        "tests/store/commitlog/test_commit_log.py::test_store_times_never_go_back"
        " tests/store/retention/test_retention.py::test_a_clock_that_is_set_makes_no_message_older",
    ),
    Row(
        "store/retention/retention.py Retention._age_ms Retention._decide",
        "remove messages that are a minute old, or none for years",
        "the younger of the ages by both clocks counts; the hour of removal follows the wall clock",
        "tests/store/retention/test_retention.py::test_a_clock_that_is_set_makes_no_message_older",
    ),
    Row(
        "broker/delay/delay_plan.py DelayPlan._timer; broker/delay/delay_service.py DelayService._round"
        " DelayService.timer_lag_ms DelayService.next_due_in_ms",
        "deliver messages with a given time at another one",
        "a given time is a time of the wall clock; levels count the time that has passed",
        f"{_SHIM} {_LEVELS}",
    ),
    Row(
        "broker/transaction/transaction_writer.py TransactionWriter._until_ms TransactionWriter._end;"
        " broker/staged/staged_log.py StagedLog.write",
        "hide committed copies from the search for them, give up what is open",
        "a search ends behind the last store time; ages count the time that has passed",
        "tests/broker/transaction/test_transaction_clock.py::test_a_committed_message_is_found_after_the_clock_was_set_back"
        " tests/broker/transaction/test_transaction_clock.py"
        "::test_a_clock_that_is_set_gives_up_no_transaction_and_asks_in_time"
        " tests/broker/stories/test_staged_limits.py::test_a_wall_clock_that_is_set_ends_no_attempt",
    ),
    Row(
        "broker/admin/broker_admin.py BrokerAdmin.runtime_info; broker/admin/consume_stats.py"
        " ConsumeStatistics._stats_data ConsumeStatistics._time_span ConsumeStatistics.of_topic;"
        " broker/admin/group_admin.py GroupAdmin._all_producers; broker/app.py BrokerApp.__init__;"
        " broker/metrics/figures.py Figures.__init__ Figures.step; namesrv/http_pages.py HttpPages.__init__;"
        " broker/metrics/observation.py Observation.__post_init__; broker/metrics/slow_requests.py"
        " SlowRequests._note_alike SlowRequests.read_slowly; broker/metrics/telemetry.py Telemetry.step;"
        " broker/flow_control/refusal_stats.py RefusalStats.note; remoting/refused_requests.py RefusedRequests.note;"
        " store/ha/service.py HaService.status; client/push/consumer_status.py ConsumerStatus.__init__;"
        " client/push/queue_pull.py QueuePull.last_pull_ms; client/durable/metrics.py RetryState.oldest_ms;"
        " client/durable/retry.py DurableRetry.now_ms",
        "show wrong ages, lags and times",
        "they are only shown; a rate without a positive span is 0, an age below 0 is 0",
        "tests/broker/stats/test_stats_items.py::test_a_clock_that_is_set_back_does_not_stop_the_samples",
    ),
    Row(
        "broker/assembly/build.py build; broker/group/subscription_groups.py SubscriptionGroups.__init__"
        " SubscriptionGroups._advance; broker/topic/topic_table.py TopicTable.__init__ TopicTable._advance"
        " TopicTable.announce_again; broker/assembly/changed_settings.py ChangedSettings.__init__;"
        " broker/settings/live_settings.py LiveSettings._keep;"
        " client/pull/pull_consumer.py PullConsumer._subscribed; client/push/push_consumer.py PushConsumer.__init__"
        " PushConsumer._subscribe_to_retries PushConsumer._subscription; common/message_id.py"
        " UniqueIdGenerator.__init__",
        "give out a version, a fencing token or an id a second time",
        "a counter goes with each; tokens and ids never go back while the process runs, and tokens are kept on disk",
        "tests/broker/lock/test_fencing_tokens.py::test_a_killed_broker_goes_on_above"
        " tests/common/test_message_id.py::test_ids_stay_unique_when_the_clock_stands_or_goes_back",
    ),
    Row(
        "client/push/rebalance_service.py RebalanceService._routes",
        'let a consumer with start="latest" that waits for its topic skip the first messages, or read older ones',
        "broker and client may differ by 5 s; it matters once, for a topic that comes after the start",
        "tests/client/pull/test_start.py::test_the_latest_of_a_topic_that_was_away_is_not_its_beginning",
    ),
    Row(
        "store/ha/connection.py SlaveConnection._data_head SlaveConnection._heartbeat; store/ha/slave.py HaSlave._take"
        " HaSlave._take_data",
        "claim that a slave lags by years",
        "a master's time is only shown as the age of what a slave has; silence is judged by monotonic time",
        "tests/store/ha/test_slave.py::test_a_silent_master_is_given_up",
    ),
    Row(
        "client/durable/ownership.py Owner.new; client/durable/resender.py Resender._opened_items Resender._run_lane"
        " Resender._send Resender._settle Resender._start_due Resender.opened Resender.resend_now;"
        " client/durable/retry.py DurableRetry._keep_keyed DurableRetry.unrouted; client/durable/worker.py"
        " StoreWorker._prepare; client/durable/rocksdb_store.py RocksDBStore._index_again RocksDBStore.repair;"
        " client/durable/sql_store.py SqlStore.repair",
        "hold a kept message back for as long as the clock was set back",
        "due times are on disk and outlive the process, so they are wall times; a clock that goes back makes all"
        " of them due; an owner's lease is judged by how long its sign stands still",
        "tests/client/durable/test_doubt.py::test_a_clock_that_is_put_back_delays_nothing_for_as_long",
    ),
    Row(
        "client/idempotence/idempotent.py Idempotent._claim Idempotent._finish Idempotent._purge_sometimes"
        " Idempotent._renew_later; client/idempotence/transaction.py _mark",
        "let a message be handled twice, or keep it from being handled",
        "several machines share the marks, so they are wall times; a step of more than the window of a mark ends it:"
        " keep the clocks of the machines within a second",
        "tests/client/idempotence/test_stores.py::test_random_calls_follow_the_model",
    ),
    Row(
        "client/producer/sections.py Sections.new; client/producer/send_trace.py SendTrace.enter SendTrace.enter_batch;"
        " client/producer/short_path.py ShortPath.__init__; client/staged/chunk_writer.py ChunkWriter._fill;"
        " client/trace/trace.py ConsumeTrace.after ConsumeTrace.before; client/connection/reply_table.py _received;"
        " broker/send/reply_processor.py ReplyProcessor._header; client/transaction/transaction_checks.py"
        " TransactionChecks.sending; client/pull/pull_consumer.py PullConsumer._start_offsets;"
        " client/telemetry/spans.py Spans.begin;"
        " store/offline/repair.py Repair._copy; store/offline/backup.py Backup.run;"
        " common/logs.py Logs._enqueue Logs._write_some;"
        " auth/server_auth.py ServerAuth.__init__",
        "write a wrong time into messages, traces, names of files or the log",
        "they are data: born times, times that a user asks for, lines of a log",
        "tests/attack/test_edges.py::test_no_request_at_the_edges_is_an_error_of_ours",
    ),
]
