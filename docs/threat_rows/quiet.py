"""Containers that no peer can fill, by the reason. A new one is listed here, or has a row in ``tables``."""

from typing import Final

from docs.threat_rows.row import Quiet

QUIET_TABLES: Final = [
    Quiet(
        "remoting/grpc/messages.py AckMessageResponse.entries QueryAssignmentResponse.assignments"
        " QueryRouteResponse.message_queues SendMessageResponse.entries",
        "this broker's own answers, as long as the request or the route",
    ),
    Quiet(
        "broker/grpc/entrance.py GrpcEntrance._connections",
        "a weak view of the server's connections, which have their own bound",
    ),
    Quiet(
        "broker/assembly/build.py Running.services; broker/assembly/build_pop.py PopParts.services;"
        " broker/delay/delay_service.py DelayService._files"
        " DelayService.levels"
        " DelayService._not_before_ns; broker/flow_control/fast_failure.py FastFailure._executors;"
        " broker/ha/slave_mirror.py SlaveMirror._files; remoting/http_server.py HttpServer._routes;"
        " broker/metrics/topic_figures.py TopicFigures._node;"
        " broker/metrics/figures.py Figures.node;"
        " broker/metrics/observation.py Watched.executors Watched.swept; broker/metrics/watermarks.py"
        " Watermarks._executors; broker/request/default_processor.py AdminProcessor._handlers AdminProcessor._later;"
        " broker/request/executor.py DrainExecutor._workers DrainExecutor.busy; broker/request/request_table.py"
        " RequestTable._executors RequestTable._pairs; broker/send/send_processor.py SendProcessor._planners;"
        " broker/send/rocketmq_send.py RocketMQSends._of_broker; broker/registration.py Registration._servers"
        " Registration._tasks; broker/flow_control/refusal_stats.py RefusalStats._watched; namesrv/server.py"
        " NamesrvApp._handlers NamesrvApp._held;"
        " auth/auth_admin.py AuthAdmin.handlers; auth/plain_admin.py PlainAclAdmin.handlers;"
        " remoting/server.py RemotingServer._listeners RemotingServer._more_acceptors;"
        " remoting/grpc/protobuf.py _writers;"
        " remoting/acceptor.py Acceptor._sockets;"
        " remoting/security/tls_files.py TlsFiles._warned TlsFiles.in_force; common/settings.py"
        " Settings._origins Settings._structs SettingsReader._fields"
        " SettingsReader._former SettingsReader._rocketmq SettingsReader._sections;"
        " store/commitlog/commit_log.py CommitLog.on_committed;"
        " store/dispatch.py Dispatcher.on_dispatched Dispatcher.on_shown; common/runner.py SteppedRunner.workers"
        " Supervisor.tasks; common/events.py BoundLog._values",
        "as many as there are parts, pairs or settings: filled when the process starts",
    ),
    Quiet(
        "client/connection/rebalance.py STRATEGIES _WITH_SETTINGS; client/connection/refusal_facts.py _CAUSES"
        " _STORED;"
        " client/producer/producer_options.py _RANGES;"
        " client/sender/retry.py DEFAULT_RETRY_RESPONSE_CODES RetryPolicy.retry_response_codes;"
        " client/producer/send_port.py SendPort.retry_response_codes; remoting/codec.py _NO_EXTRA;"
        " remoting/codec_binary.py _CUT _LENGTHS _name_bytes; remoting/codec_json.py _LANGUAGES;"
        " remoting/codec_msgpack.py"
        " _ARRAY_HEAD_BYTES _INT_BYTES _DECODERS _REQUEST_DECODERS; remoting/string_map.py _BOOLS _NONE _SMALL",
        "constants of the code",
    ),
    Quiet(
        "broker/assembly/role_changes.py RoleChanges._tasks; broker/ha/members_claim.py MembersClaim._tasks",
        "one task at a time",
    ),
    Quiet(
        "broker/delay/delay_offsets.py DelayOffsets._settled DelayOffsets._table _OffsetsFile.offset_table;"
        " broker/delay/delay_service.py DelayProgressBody.offset_table Snapshot.table",
        "one entry for each level",
    ),
    Quiet(
        "broker/flow_control/admission.py Admission._overload_logged_ns Admission.refused;"
        " broker/flow_control/fast_failure.py FastFailure.swept; broker/metrics/interval_log.py IntervalLog._counted"
        " IntervalLog._puts IntervalLog._refused IntervalLog._stages; broker/metrics/telemetry.py"
        " Telemetry._slot_begins_ns; broker/metrics/observation.py Observation.denials;"
        " broker/metrics/sources.py Sources.denials; broker/stats/counters.py BrokerCounters._samples;"
        " broker/stats/put_statistics.py PutStatistics._counts PutStatistics._slots;"
        " broker/stats/stage_times.py PairStages._histograms"
        " StageTimes._pairs; broker/stats/stats_items.py StatsItems._windows _Item.calls_at _Item.value_at"
        " _Window.times_ms; broker/transaction/transaction_writer.py TransactionWriter.totals;"
        " broker/flow_control/refusal_stats.py _Kind.numbers _Kind.seconds; remoting/refused_requests.py"
        " _Kind.numbers"
        " _Kind.seconds; common/histogram.py Histogram.counts WindowedHistogram._slots;"
        " store/commitlog/append_lock.py"
        " AppendLock._longest_ns; common/exposition.py Family.samples Family.lines",
        "counters by pair, stage, second or bucket: a fixed number, or that of a bounded table",
    ),
    Quiet(
        "broker/topic/registered_topics.py RegisteredTopics._reached",
        "one entry for each name server of the settings",
    ),
    Quiet(
        "broker/group/request_modes.py _File.message_request_mode_map; broker/pop/ordered_batches.py _File.table;"
        " broker/pop/pop_snapshot.py PopSnapshot._loaded _File.queues;"
        " broker/group/consumer_offsets.py _OffsetsFile.offset_table; broker/group/subscription_groups.py"
        " _GroupsFile.subscription_group_table; broker/topic/topic_table.py _TopicsFile.topic_config_table;"
        " broker/transaction/transaction_recovery.py _ProgressFile.checks; broker/transaction/transaction_service.py"
        " _Snapshot.checks; broker/ha/slave_mirror.py _Deletions.deleted_topics; broker/registration.py"
        " _RegisterBody.filter_server_list _Wrapper.topic_config_table; store/consumequeue/deleted_topics.py"
        " _DeletedFile.deleted_topics; common/topics.py TopicConfig.attributes",
        "the form of a file or body, of a table that has its own row; it lives while it is read or written",
    ),
    Quiet(
        "broker/pop/pop_reader.py Popped.counts Popped.queues Popped.results;"
        "broker/delay/delivery.py Delivery.later; broker/pull/pull_service.py Resumed.offsets;"
        " broker/request/request_task.py Drain.answers Drain.released Drain.stages_ns Drain.tasks;"
        " broker/send/native_append.py"
        " NativeSend.half_runs NativeSend.positions NativeSend.refusals NativeSend.verdicts;"
        " broker/send/reply_processor.py _Reply.properties; broker/send/rocketmq_send.py"
        " RocketMQSend.metas RocketMQSend.records; broker/send/send_batch.py Appended.first_queue_offsets"
        " Appended.runs"
        " SendBatch.sends; broker/send/send_checks.py SendChecks._unsure; broker/send/send_times.py"
        " PutTiming.stages_ns; broker/send/short_routes.py Route.checks; broker/send/short_rocketmq_answers.py"
        " RocketMQFrame.answers; broker/transaction/end_transaction_processor.py"
        " _Decision.asked _Work.verdicts; broker/transaction/transaction_commits.py CommitGroup._keys"
        " CommitGroup._parts CommitGroup._prepared CommitGroup._queue_ids CommitGroup._sections CommitGroup._sizes"
        " CommitGroup._tags_codes CommitGroup._uniq_keys CommitGroup._unwritten; common/message.py"
        " ReceivedMessage._properties; common/plain_check.py _ColumnCheck.errors _ColumnCheck.keys"
        " _ColumnCheck.others"
        " _ColumnCheck.topics; common/plain_rules.py CheckedSections.errors PlainFacts.keys PlainFacts.tags_codes"
        " PlainFacts.uniq_keys; common/record_group.py RecordGroup.keys RecordGroup.other_uniq_keys"
        " RecordGroup.sections; remoting/codec_json.py _Outgoing.extFields _Usual.extFields;"
        " remoting/refused_requests.py _Sender.consumer_data_set; store/append_result.py"
        " AppendResult.first_queue_offsets AppendResult.runs; store/commitlog/group_feed.py"
        " LogColumns.other_uniq_keys; store/index/index.py KeyQueryResult.offsets; store/short_append.py"
        " ShortAppend._confirmed ShortAppend._held ShortAppend._shown ShortFrame.places;"
        " common/runner.py AllSteps._failed",
        "work on the requests of one drain: it ends with them, and they are bounded in count and bytes",
    ),
    Quiet(
        "broker/settings/live_settings.py LiveSettings._structs LiveSettings.kept LiveSettings._applied"
        " _File.settings;"
        " broker/flow_control/fast_failure.py FastFailure._all_executors; common/logs.py Logs._thresholds",
        "one for each setting that can change, each pair, each part of the server",
    ),
    Quiet("common/runner.py LoopMailbox._calls", "answers of requests that a bounded queue has let in"),
    Quiet("remoting/short_answers.py ShortAnswers._entries", "the same object as PendingTable.entries"),
    Quiet("remoting/direct_writer.py DirectWriter._descriptors", "one descriptor"),
    Quiet(
        "store/commitlog/buffer_header.py Header._words; store/commitlog/windows.py Windows._bound;"
        " store/commitlog/write_buffer_pool.py WriteBufferPool._free; store/consumequeue/get_run.py"
        " RunReader._scratches; store/commitlog/log_writer.py LogWriter.unclean; store/index/index.py"
        " KeyIndex._index_files; store/recovery/left_buffers.py Left.found Left.refused Left.suspects",
        "as many as there are buffers, segments or files: the operator's settings and disk",
    ),
    Quiet("common/logs.py CapturedLog._values CapturedLog.events", "logs that tests capture"),
    Quiet(
        "common/known_texts/search.py index(); common/known_texts/explanation.py _Found._attempted _Found._done"
        " _Found._heads _Found._waiting Explanation.outer",
        "of one paste of at most 1 MiB in the process of the command: 64 explanations, eight texts around each; the"
        " index has the texts of the code",
    ),
    Quiet("store/offline/* *", "of the offline tools: the size of the store that an operator names"),
    Quiet(
        "remoting/protocol/* *",
        "fields of one decoded header or body: they live as long as their frame, whose size is bounded",
    ),
    Quiet(
        "client/arrow/* *; client/message/* *; client/durable/* *; client/idempotence/* *; client/staged/* *;"
        " client/admin/* *",
        "of what the application sends, keeps or asks for, with limits of its own",
    ),
    Quiet(
        "client/connection/instance.py ClientInstance._consumer_asked ClientInstance._consumer_changes"
        " ClientInstance._consumers ClientInstance._fetching ClientInstance._opening ClientInstance._producers"
        " ClientInstance._request_handlers ClientInstance._shared ClientInstance.on_route_changed TaskSet._tasks;"
        " client/pull/pull_consumer.py PullConsumer._positions PullConsumer._subscriptions; client/pull/pull_round.py"
        " Round.after Round.before Round.results; client/push/push_consumer.py PushConsumer._streams"
        " PushConsumer._topics; client/producer/accumulator.py Accumulator.frames Accumulator.open;"
        " client/producer/overlap.py Overlap._times; client/producer/parking.py Parking.waiting;"
        " client/producer/send_chain.py SendChain._begun; client/producer/short_append.py ShortAppend.keys"
        " ShortAppend.parts ShortAppend.sizes; client/producer/short_path.py ShortPath._cut ShortPath._turn;"
        " client/producer/submission.py Submission.ids; client/sender/in_flight.py InFlight._waiting;"
        " client/sender/section.py Frame.sections Section.attempts Section.futures Section.messages Section.records"
        " Section.uniq_keys; client/sender/send_windows.py SendWindows._windows _Window.waiting;"
        " client/sender/sender.py SectionSender._in_flight SectionSender._rescuing SectionSender._tails;"
        " client/transaction/transaction_end.py EndSender._turn EndSender._turn_of _Turn.ends _Turn.futures;"
        " client/sender/retry_gate.py RetryGate._waiting; client/sender/attempt_plan.py AttemptPlan._orders",
        "of the topics, sends and polls of the application, which in_flight_sends_max bounds",
    ),
    Quiet(
        "client/connection/instance.py ClientInstance._connections; client/pull/broker_connections.py"
        " ReadConnections._avoided; client/sender/answers.py Answers._hosts; client/push/send_back.py"
        " SendBack._failing;"
        " client/sender/native_send.py NativeSend._builders; client/sender/queue_choice.py QueueChooser._turns",
        "one small entry for each broker that was connected, or topic of the application",
    ),
    Quiet(
        "client/pull/offsets.py OffsetTable._dirty OffsetTable._offsets; client/pull/pull_wire.py"
        " PullWire._first_commits PullWire._suggested; client/push/rebalance_service.py RebalanceService._shared_out"
        " RebalanceService.pulls RebalanceService._missing RebalanceService._first_queues RebalanceService._starts"
        " RebalanceService._came;"
        " client/handlers/consumer_statistics.py *; client/handlers/handler_watch.py *;"
        " client/handlers/handlers.py *; client/handlers/lock_waits.py *; client/handlers/ordered.py *;"
        " client/handlers/queue_locks.py *; client/handlers/worker_pool.py Worker*",
        "one entry for each queue of the application's routes, or for each of its workers",
    ),
    Quiet(
        "client/producer/send_telemetry.py SendTelemetry._sections SendTelemetry._sends; client/telemetry/spans.py"
        " Spans._common",
        "one entry for each send in flight, which in_flight_sends_max bounds; two attributes of the client",
    ),
    Quiet("store/disk/own_place.py OwnPlace._identities", "three paths of the store itself"),
    Quiet(
        "client/push/stop_signals.py _HOLDS _Hold._before _Hold._stops",
        "one entry for each signal and running consumer of the process",
    ),
    Quiet(
        "client/handlers/typed_handler.py _Batch.bad _Batch.good _Batch.values; common/value_codec.py known_decoder()",
        "one entry for each message of a handler's call; the types that the application decodes",
    ),
    Quiet("broker/delay/target_topics.py TargetTopics._made", "names that the table of topics took, which is bounded"),
    Quiet("client/pull/offsets.py _WHERE; common/message_id.py _HEX", "constants, of which the second is made late"),
]
