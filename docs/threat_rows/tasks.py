"""Long-lived tasks, threads and timers: what could end or stall them, and who notices."""

from typing import Final

from docs.threat_rows.row import Quiet, Row

_OWNED = "tests/test_background_work.py::test_every_task_and_every_thread_has_an_owner"
_GOES_ON = "tests/test_background_work.py::test_each_goes_on_after_its_first_step_has_failed"

TASKS: Final = [
    Row(
        "remoting/grpc/http2.py Http2Connection._begin Http2Connection._stream_ended Http2Connection._complete;"
        " broker/grpc/telemetry.py Telemetry.serve",
        "calls without end, or whose client has gone",
        "a task a whole request, ended by its deadline, by a cancel or with the connection; errors are answers",
        "tests/remoting/grpc/test_http2.py::test_a_client_that_goes_ends_its_calls"
        " tests/remoting/grpc/test_http2.py::test_a_deadline_ends_the_call_and_its_work"
        " tests/remoting/grpc/test_http2.py::test_a_bug_of_a_service_ends_its_call_alone",
    ),
    Row(
        "broker/grpc/entrance.py GrpcEntrance.start; broker/grpc/settlement.py Settlement.change_soon;"
        " broker/grpc/telemetry.py Telemetry._ask Telemetry._settle",
        "an error that ends renewals for good; questions and settings to a client that is silent",
        "a failed round is logged and the next one comes; one request or one timer each",
        "tests/broker/grpc/test_clients.py::test_a_round_that_fails_is_logged_and_the_next_one_comes",
    ),
    Row(
        "broker/admin/assignments.py Assignments._begin",
        "questions for queues while no name server answers",
        "1,000 at a time, each with a time of its own; every error is an answer",
        "tests/broker/admin/test_assignments.py::test_waiting_questions_are_bounded"
        " tests/broker/admin/test_assignments.py::test_a_name_server_that_fails_is_a_refusal_with_a_trace",
    ),
    Row(
        "client/simple/simple_consumer.py _Renewal._arm _Renewal._renew",
        "a broker that does not answer renewals",
        "one timer for the message of a loop; a failure is logged, and the next one tries again; none after the body",
        "tests/client/simple/test_simple_consumer.py::test_a_loop_acknowledges_and_renews",
    ),
    Row(
        "client/simple/pop_lanes.py PopLanes.receive PopLanes._keep",
        "a broker that never answers a pop, or answers when nobody waits any more",
        "one timer a receive, which ends it; one timer for all messages that are kept, which gives them back",
        "tests/client/simple/test_simple_consumer.py::test_a_short_wait_ends_beside_a_long_one"
        " tests/client/simple/test_simple_consumer.py::test_what_nobody_asks_for_is_given_back",
    ),
    Row(
        "broker/group/group_notifier.py GroupNotifier._notify",
        "changes of membership without end",
        "one timer a group with a change, 200 ms",
        "tests/broker/group/test_group_notifier.py::test_a_change_during_the_pause_is_not_lost",
    ),
    Row(
        "namesrv/holders.py Holders.ask",
        "registrations that have the name server ask a broker that does not answer",
        "2 s, then the broker counts as gone; 64 requests wait, 8 for one broker",
        "tests/namesrv/test_holders.py::test_without_an_answer_the_holder_is_gone",
    ),
    Row(
        "common/runner.py Supervisor.keep ThreadWorker.__init__;"
        " client/connection/instance.py TaskSet.keep TaskSet.spawn",
        "bytes that end a loop for good, in silence",
        "a failure is logged, counted in a bounded table and in /health, and the work starts again",
        f"{_OWNED} tests/test_background_work.py::test_who_starts_a_task_or_a_thread_is_named_here {_GOES_ON}"
        " tests/common/test_supervised.py"
        "::test_a_loop_that_fails_is_reported_counted_and_restarted",
    ),
    Row(
        "broker/request/executor.py DrainExecutor.start",
        "a request whose work raises, or never ends",
        "the rest of the drain is answered, the thread lives on; a stop has a time",
        "tests/broker/request/test_executor.py"
        "::test_an_error_in_the_processor_answers_the_rest_and_spares_the_worker"
        " tests/broker/request/test_executor.py::test_finish_without_time_answers_what_is_left",
    ),
    Row(
        "broker/app.py BrokerApp._start BrokerApp._open_grpc BrokerApp._restart BrokerApp._close_off_loop;"
        " broker/ha/off_loop.py run_off_loop",
        "requests that wait when the broker stops",
        "requests of all but the storing pairs are served for a second at most; every step of a stop is taken",
        "tests/broker/test_app.py::test_a_stop_answers_everything_that_waits"
        " tests/broker/request/test_executor.py::test_a_crowd_that_waits_does_not_hold_up_the_end"
        " tests/attack/test_attacks.py::test_strangers_keep_nobody_waiting",
    ),
    Row(
        "broker/ha/slave_sync.py SlaveSync.start SlaveSync._take_over;"
        " broker/ha/replication.py Replication.learn_epoch;"
        " broker/ha/members_claim.py MembersClaim._begin; broker/assembly/role_changes.py RoleChanges._spawn",
        "a false master whose tables or answers raise",
        "the mirror goes on with its next round; role changes are watched and one at a time",
        "tests/broker/stories/test_ha_pair.py::test_a_damaged_table_does_not_end_the_mirroring"
        " tests/test_background_work.py::test_a_slave_whose_mirror_meets_a_fault_of_ours_goes_on",
    ),
    Row(
        "broker/registration.py Registration.start; namesrv/server.py NamesrvApp.start NamesrvApp._arm;"
        " namesrv/epoch_store.py EpochStore.start",
        "a name server that does not answer, claims that fill its queue",
        "one loop per name server; 1,024 waiting claims, then refusals; the disk is not the loop's",
        "tests/broker/topic/test_registered_topics.py::test_a_silent_name_server_is_waited_for_once"
        " tests/namesrv/test_epochs.py::test_a_claim_that_cannot_be_written_does_not_hold",
    ),
    Row(
        "remoting/acceptor.py Acceptor._begin Acceptor._pump Acceptor._wait_for_descriptors",
        "floods of handshakes, slow ones, and hellos that are held back to arrive together: each takes the loop for the"
        " private key's operation",
        "one begins only when its hello is whole; tls.handshakes_per_second_max, 64 open at once and 32 of one address,"
        " addresses in turn; one older than a second gives way",
        "tests/remoting/test_handshakes.py::test_so_many_begin_in_a_second"
        " tests/remoting/test_handshakes.py::test_hosts_take_turns"
        " tests/remoting/test_handshakes.py::test_one_host_has_no_more_than_its_share_open"
        " tests/remoting/test_handshakes.py::test_a_slow_one_gives_way_only_where_others_wait_for_its_place"
        " tests/remoting/test_acceptor.py::test_a_handshake_that_does_not_go_on_ends",
    ),
    Row(
        "remoting/security/tls_files.py TlsFiles.start",
        "a certificate that is broken, half-written or gone when it is looked at again",
        "the former one stays in force, with one line in the log",
        "tests/remoting/security/test_tls_files.py::test_changed_files_are_taken_while_it_runs",
    ),
    Row(
        "remoting/connection.py Connection._answer_over_quota",
        "sends over a limit without end: each refusal costs as much as a send",
        "after a hundred refusals in a second the connection is not read for 250 ms; one timer a connection",
        "tests/remoting/limits/test_limited_server.py::test_a_peer_that_does_not_listen_is_not_read_for_a_while"
        " tests/attack/test_loads.py::test_a_bystander_is_served_under_attack",
    ),
    Row(
        "remoting/server.py RemotingServer._listen RemotingServer._arm; broker/pull/pull_service.py PullService._arm;"
        " broker/flow_control/fast_failure.py FastFailure.start FastFailure._tick;"
        " broker/send/run_to_completion.py RunToCompletion.serve",
        "floods that leave the loop no time",
        "64 frames of a connection, then the others have their turn; requests that waited too long are refused",
        "tests/remoting/test_server.py::test_a_flood_of_small_frames_leaves_the_loop_to_the_others"
        " tests/broker/flow_control/test_fast_failure.py"
        "::test_no_request_waits_longer_than_its_limit_and_one_period",
    ),
    Row(
        "broker/delay/delay_service.py DelayService.start; broker/staged/staged_service.py StagedService.start;"
        " broker/transaction/transaction_service.py TransactionService.start; broker/lock/lock_manager.py"
        " LockManager.start; broker/housekeeping.py Housekeeping.start; broker/pop/pop_snapshot.py PopState.start;"
        " broker/pop/revival.py Revival.start",
        "messages, chunks or locks that make a service fail again and again",
        "what cannot be done is reported and skipped; one table's error does not stop the next",
        "tests/broker/delay/test_delay_service.py::test_what_cannot_be_delivered_is_reported_and_skipped"
        " tests/broker/test_housekeeping.py::test_one_table_that_cannot_be_written_does_not_keep_the_others"
        " tests/broker/pop/test_revival.py::test_what_cannot_be_copied_waits_and_what_is_gone_is_reported",
    ),
    Row(
        "remoting/http_server.py HttpServer.start; broker/metrics/telemetry.py Telemetry.start;"
        " broker/metrics/observation.py Observation.watch; broker/metrics/thread_dump.py ThreadDumper.start;"
        " broker/metrics/figures.py Figures.start; namesrv/http_pages.py HttpPages._tick",
        "silent HTTP clients that keep the doctor out",
        "the oldest silent one goes; the thread ends at once when asked",
        "tests/remoting/test_http_server.py::test_silent_peers_keep_no_client_out"
        " tests/remoting/test_http_server.py::test_without_descriptors_the_server_does_not_spin",
    ),
    Row(
        "store/ha/service.py HaService.start; store/ha/connection.py SlaveConnection.start SlaveConnection._begin;"
        " store/ha/slave.py HaSlave.start; store/ha/group_transfer.py GroupTransfer.start;"
        " store/ha/shown.py Shown.start",
        "connections at the replication port that say nothing, or end in the middle of a frame",
        "40 connections, of which the oldest without a HELLO makes room; a handshake of 5 s, two threads each that end"
        " with it",
        "tests/store/ha/test_refused_slaves.py::test_a_crowd_of_strangers_is_bounded_and_keeps_no_slave_out"
        " tests/store/ha/test_refused_slaves.py::test_a_silent_stranger_is_sent_away_after_five_seconds",
    ),
    Row(
        "store/dispatch.py Dispatcher.start; store/consumequeue/consume_queues.py ConsumeQueues.start;"
        " store/index/index.py KeyIndex.start; store/retention/retention.py Retention.start;"
        " store/checkpointer.py Checkpointer.start; store/commitlog/allocate.py SegmentAllocator.start;"
        " store/commitlog/commit.py CommitService.start; store/commitlog/flush.py FlushService.start;"
        " store/commitlog/group_commit.py GroupCommit.start",
        "records of a copied log that make a thread of the store fail again and again",
        "an illegal record is skipped; a failing step is reported and tried again; a disk that fails fences the log",
        "tests/store/disk/test_queue_paths.py::test_a_log_taken_over_is_recovered_without_its_illegal_records"
        " tests/store/test_dispatch.py::test_damage_in_the_log_is_reported_and_passed"
        f" {_GOES_ON}",
    ),
    Row(
        "client/connection/instance.py ClientInstance.start; client/push/rebalance_service.py RebalanceService.start"
        " RebalanceService._persist_these; client/push/queue_pull.py QueuePull.start; client/handlers/queue_locks.py"
        " QueueLocks.start; client/push/push_consumer.py PushConsumer.start; client/trace/trace.py"
        " TraceDispatcher.start; client/transaction/transaction_producer.py TransactionProducer.start;"
        " client/durable/resender.py Resender.start",
        "a false broker's answers end a loop of an application's client",
        "every loop is kept: logged, counted, started again",
        f"{_GOES_ON} tests/attack/test_answers.py::test_a_client_outlives_absurd_answers",
    ),
    Row(
        "remoting/channel.py ClientChannel._expire ClientChannel.close ClientChannel.hello ClientChannel.write_request"
        " ClientChannel.request_nowait; remoting/channel_pool.py ChannelPool.get",
        "a broker that takes requests and answers none",
        "each request has a time; three timeouts and 5 s without a frame end the connection; connects back off; callers"
        " share one connect",
        "tests/remoting/test_channel.py::test_a_request_without_an_answer_times_out"
        " tests/remoting/test_silence.py::test_a_channel_leaves_a_server_that_answers_nothing_whole"
        " tests/remoting/test_channel_pool.py::test_connect_refused_then_backoff_then_connect",
    ),
    Row(
        "client/transaction/transaction_checks.py TransactionChecks.run_plain; client/handlers/handler_call.py"
        " HandlerCall.invoke; client/handlers/worker_pool.py WorkerPool._turn_threads Workers._start_worker"
        " Workers._worker_ended",
        "messages and checks whose handler raises or hangs",
        "a failure belongs to its message; replacements of hung workers are bounded",
        "tests/client/stories/test_hung_handlers.py::test_replacements_are_bounded"
        " tests/client/stories/test_transactions.py::test_a_check_that_raises_or_hangs_harms_no_other",
    ),
    Row(
        "common/logs.py Logs.__init__",
        "events without end, values of a megabyte, lines that forge other lines",
        "a queue in count and bytes, repeats left out and counted, values cut and escaped",
        "tests/common/test_logs.py::test_values_are_bounded_copied_and_cannot_forge_a_line"
        " tests/common/test_logs.py::test_the_queue_is_bounded_in_bytes_too",
    ),
]

QUIET_TASKS: Final = [
    Quiet("common/logs.py Logs.close", "the end of the process, which waits for it for 1.5 s"),
    Quiet("store/recovery/recovery.py Recovery._cut Recovery._finish", "`keep` of the quarantine: no task"),
    Quiet("client/blocking.py LoopThread.start LoopThread.submit", "begun and ended by the application"),
    Quiet(
        "client/durable/retry.py DurableRetry._keep; client/durable/worker.py StoreWorker.start",
        "begun by the application's sends; the store is its own",
    ),
    Quiet(
        "client/handlers/handler_failures.py FailedMessages._again; client/handlers/handlers.py ConcurrentMode.finish;"
        " client/handlers/ordered.py OrderedMode.finish; client/handlers/ordered_queue.py OrderedRunner.rest",
        "a timer for each message in hand, of which there is a limit in count and bytes",
    ),
    Quiet(
        "client/idempotence/idempotent.py *; client/idempotence/rocksdb_store.py *", "one for each call of a handler"
    ),
    Quiet("client/idempotence/sql_store.py *; client/idempotence/transaction.py *", "one for each call of a handler"),
    Quiet(
        "client/producer/compression.py Compression.enter; client/producer/parking.py Parking.park;"
        " client/producer/send_chain.py SendChain._keep_unrouted SendChain.keep_failed _both;"
        " client/producer/submission.py Submission._schedule_flush; client/sender/attempt_log.py AttemptLog.note;"
        " client/sender/send_windows.py SendWindows._check_later; client/staged/chunk_writer.py ChunkWriter._flush",
        "begun by the application's sends, within in_flight_sends_max",
    ),
    Quiet(
        "client/pull/pull_consumer.py PullConsumer._prefetch PullConsumer.poll_arrow;"
        " client/pull/pull_round.py next_round;"
        " client/push/loop_watch.py LoopWatch.start LoopWatch._beat; client/push/message_stream.py"
        " MessageStream.__anext__; client/push/push_consumer.py PushConsumer._thread_pool PushConsumer.run"
        " PushConsumer._warn_idle",
        "begun by the application, one for each poll or consumer",
    ),
]
