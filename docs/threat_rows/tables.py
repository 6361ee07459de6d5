"""Tables that a peer can fill: every container that grows with what peers send, and what bounds it."""

from typing import Final

from docs.threat_rows.row import Row

_BEATS = "tests/broker/group/test_client_processor.py"
_CLIENTS = "tests/broker/group/test_client_table.py"
_LOCKS = "tests/broker/lock/test_lock_table.py"
_ROUTES = "tests/namesrv/test_route_table.py"
_STAGED = "tests/broker/stories/test_staged_limits.py"
_OPEN = "tests/broker/transaction/test_transaction_table.py"

_GRPC = "tests/broker/grpc/test_clients.py"
_HTTP2 = "tests/remoting/grpc/test_http2.py"

TABLES: Final = [
    Row(
        "broker/delay/delivery.py Deliverer._recalls",
        "recalls of messages that do not exist",
        "100,000, each for a minute behind its time; more are not remembered",
        "tests/broker/stories/test_recall.py::test_a_recalled_message_is_not_delivered",
    ),
    Row(
        "broker/grpc/clients.py GrpcClients._clients GrpcClient.commands",
        "gRPC calls with ever new client ids, settings with thousands of topics, a client that reads no commands",
        "10,000 clients; those without settings give way, silent ones are forgotten; 128 MiB for settings and commands,"
        " 64 commands for one client; 256 KiB a message",
        f"{_GRPC}::test_clients_have_a_limit_and_those_without_settings_give_way"
        f" {_GRPC}::test_settings_and_commands_share_a_memory {_GRPC}::test_a_client_that_is_silent_is_forgotten",
        declares="gRPC clients; settings and commands of gRPC clients",
    ),
    Row(
        "broker/grpc/open_transactions.py OpenTransactions.places",
        "half messages whose transactions never end",
        "100,000; the oldest is forgotten, and the next check of it brings it back",
        "tests/broker/test_bounds.py::test_a_table_never_exceeds_its_bound",
        declares="gRPC transactions",
    ),
    Row(
        "broker/grpc/renewal.py Renewal.held",
        "messages that are received with automatic renewal and never acknowledged",
        "100,000; what is forgotten becomes visible in its time; three hours a message",
        "tests/broker/test_bounds.py::test_a_table_never_exceeds_its_bound"
        " tests/broker/grpc/test_renewal.py::test_renewal_ends_after_three_hours",
        declares="messages that gRPC clients hold",
    ),
    Row(
        "broker/grpc/routes.py Routes.kept; broker/grpc/telemetry.py Telemetry.asked;"
        " broker/grpc/settlement.py Settlement._soon",
        "routes of ever new topics; questions that a client never answers; receives that end in the middle",
        "1,000 topics for 5 s; 10,000 questions for 10 s; as many as messages are handed out, each one request",
        "tests/broker/grpc/test_calls.py::test_a_topic_that_is_none_has_no_route"
        " tests/broker/grpc/test_calls.py"
        "::test_a_consumer_is_asked_to_consume_a_message_and_for_its_stacks",
    ),
    Row(
        "remoting/grpc/http2.py Http2Connection._calls Http2Connection._blocked; remoting/grpc/call.py Call._data"
        " Call._messages; remoting/grpc/inner_connection.py InnerConnection._waiting",
        "thousands of calls, halves of messages, answers that are not read",
        "1,000 calls a connection; 128 MiB for all that is not whole or not read; 16 messages of a stream",
        f"{_HTTP2}::test_half_requests_share_a_memory {_HTTP2}::test_answers_that_nobody_reads_share_the_memory"
        f" {_HTTP2}::test_more_streams_than_allowed_are_refused",
    ),
    Row(
        "remoting/grpc/messages.py AckMessageRequest.entries CustomizedBackoff.next Endpoints.addresses"
        " MessageOf.user_properties MessageQueue.accept_message_types Publishing.topics SendMessageRequest.messages"
        " Subscription.subscriptions SystemProperties.keys",
        "a request of a few megabytes that is a million empty messages",
        "20,000 fields a message, with all that is in it; then the limits of each service",
        "tests/remoting/grpc/test_protobuf.py::test_many_small_fields_are_refused_before_they_cost_memory",
    ),
    Row(
        "broker/pop/pop_ledger.py PopLedger.queues PopLedger._heap; broker/pop/pop_queue.py PopQueue.unacked"
        " PopQueue.buckets; broker/pop/revival.py Revival._waiting",
        "pops of ever new groups, messages that are never acknowledged, times that change without end",
        "pop_inflight_message_threshold a queue, pop_unacked_max and pop_queues_max in all; a queue has 600 buckets"
        " with two entries a message; 65,536 copies wait for the disk",
        "tests/broker/pop/test_pop_ledger.py::test_limits_in_all"
        " tests/broker/pop/test_pop_ledger.py::test_changes_without_end_keep_the_buckets_small"
        " tests/broker/pop/test_pop_ledger.py::test_a_million_messages_in_flight_take_less_than_300_mb",
        declares="messages in flight; popped queues",
    ),
    Row(
        "broker/pop/ordered_batches.py OrderedBatches._table OrderedBatches._heap OrderedBatches._waits"
        " OrderBatch.offset_list OrderBatch.consumed OrderBatch.next_visible",
        "ordered pops of ever new groups and queues",
        "pop_ordered_batches_max batches of 32 messages; one entry of the heap a batch and change that ends it earlier",
        "tests/broker/pop/test_ordered_batches.py::test_batches_are_bounded",
        declares="ordered batches",
    ),
    Row(
        "broker/pop/revive_log.py _Found.points _Found.acks _CheckPoint.distances _Ack.offsets",
        "check points without end in the store of a RocketMQ broker",
        "read once at the first start; unread ones and timers of 13 hours; the ledger takes pop_unacked_max",
        "tests/broker/pop/test_revive_log.py::test_what_rocketmq_left_in_flight_is_in_flight_here",
    ),
    Row(
        "client/simple/pop_lanes.py PopLanes._kept PopLanes._errors PopLanes._popping PopLanes._settlings"
        " PopLanes._waiting",
        "a false broker gives more messages than were asked for",
        "one pop a broker, for what the application waits for, at most 1,024 messages; an answer with more is an error;"
        " the rest is what the application itself has begun",
        "tests/client/simple/test_pop_wire.py::test_answers_that_lie_are_errors",
    ),
    Row(
        "broker/pop/pop_service.py PopHolds.watched",
        "pops that wait for ever new groups and topics",
        "an entry for what waits, and nothing when it ends; those that wait are bounded in count and bytes",
        "tests/broker/pop/test_pop_service.py::test_what_is_watched_goes_with_the_holds",
    ),
    Row(
        "broker/group/request_modes.py RequestModes._modes",
        "modes for ever new pairs of topic and group",
        "topic and group must exist; as many as subscription_groups_max",
        "tests/broker/admin/test_assignments.py::test_the_request_mode_is_kept_and_listed",
        declares="request modes",
    ),
    Row(
        "broker/group/client_table.py ClientTable._producers ClientTable._consumers ClientTable._producer_ids"
        " ClientTable._groups_of ConsumerGroup.clients ConsumerGroup.subscriptions ConsumerGroup.wishes"
        " ConsumerGroup.shared",
        "heartbeats with new clients, groups and long subscriptions",
        "clients_max, clients_size_bytes_max, lengths of each text; silent clients expire",
        f"{_CLIENTS}::test_bytes_are_bounded_and_what_is_known_goes_on"
        f" {_CLIENTS}::test_any_order_of_events_keeps_the_sum_of_bytes {_BEATS}::test_clients_have_a_bound_in_bytes",
        declares="clients; clients and subscriptions",
    ),
    Row(
        "auth/guard.py AuthGuard.sessions AuthGuard.failures; auth/session.py Session.verdicts Remembered._sessions;"
        " auth/denials.py Denials.entries Denials.counts; namesrv/server.py"
        " NamesrvApp._auth_asked",
        "one user from ever new addresses, ever new names of topics, wrong signatures without end",
        "10,000 sessions with 10,000 verdicts each, 100,000 in all, and 4,096 addresses, then they start again; names"
        " of at most 255 characters; the last 1,000 denials;"
        " 50 wrong signatures a second and address are checked; 256 requests of administrators wait",
        "tests/auth/test_guard.py::test_what_a_peer_can_fill_is_bounded"
        " tests/auth/test_guard.py::test_names_without_end_of_one_user_at_many_addresses_are_forgotten"
        " tests/auth/test_guard.py::test_a_name_longer_than_any_policy_has_is_not_remembered"
        " tests/auth/test_guard.py::test_many_wrong_signatures_are_refused_unread_for_a_second",
        declares="sessions; failures by address; verdicts of a session; verdicts of all sessions; denials",
    ),
    Row(
        "broker/stats/rpc_times.py RpcTimes._counts RpcTimes._sums_ns; broker/send/short_drain.py"
        " ShortDrain._quick_codes",
        "requests with ever new codes",
        "one entry for each code that there is, and one for all others",
        "tests/broker/stats/test_rpc_times.py::test_codes_of_a_peer_s_making_are_one",
    ),
    Row(
        "remoting/connection.py Connection.sent_topics",
        "sends to ever new topics",
        "the latest 16 names of at most 255 characters a connection",
        "tests/broker/metrics/test_connz.py::test_it_says_to_which_topics_sends_go_of_each_kind",
    ),
    Row(
        "auth/http_access.py HttpAccess.failures",
        "wrong passwords at the HTTP port from ever new addresses",
        "4,096 addresses, the oldest goes; 50 wrong ones a second and address are looked at",
        "tests/auth/test_http_access.py::test_the_table_of_failures_is_bounded",
        declares="HTTP failures by address",
    ),
    Row(
        "remoting/limits/server_limits.py ServerLimits.hosts ServerLimits.connects ServerLimits.users"
        " ServerLimits.barred ServerLimits.counts; remoting/limits/quota.py Buckets.inbound Buckets.outbound;"
        " broker/metrics/observation.py Observation.quota_refusals; broker/metrics/sources.py Sources.quota_refusals",
        "connections from ever new addresses, as ever new users",
        "10,000 addresses and users, and 4,096 barred addresses; of more, the oldest are forgotten, users with"
        " connections last; four buckets each; one count a kind of limit",
        "tests/remoting/limits/test_server_limits.py::test_what_peers_can_fill_is_bounded",
        declares="limits by address; connects by address; limits by user; addresses that may not connect",
    ),
    Row(
        "auth/auth_table.py EntryBody.actions EntryBody.source_ips PolicyBody.entries _AclBody.policies _FileBody.users"
        " _FileBody.acls; auth/rules.py _Index.literals _Index.anys Rules._types",
        "an administrator's users and policies without end; requests that name thousands of topics under them",
        "10,000 users, 1,000 entries each, 100 addresses an entry; a decision looks up the entries for a name; 5,000"
        " names and a body of 512 KiB a request",
        "tests/auth/test_auth_table.py::test_users_and_entries_are_bounded"
        " tests/auth/test_rules.py::test_a_decision_looks_at_the_entries_for_its_name_alone"
        " tests/auth/test_guard.py::test_a_request_that_names_too_much_is_refused_before_all_is_decided",
    ),
    Row(
        "broker/group/client_processor.py ClientProcessor._conflicts",
        "members that differ in ever new groups",
        "4,096 groups, then it starts again",
        "tests/broker/group/test_message_filter.py::test_members_that_differ_are_found",
    ),
    Row(
        "broker/group/consumer_offsets.py ConsumerOffsets._table; broker/ha/slave_mirror.py LocalCommits._table",
        "commits of ever new groups",
        "consumer_offsets_max, 256 MiB; only topics that exist; what is known still moves",
        "tests/broker/group/test_consumer_offsets.py::test_offsets_are_bounded_in_bytes"
        " tests/broker/group/test_consumer_offsets.py"
        "::test_a_commit_over_the_bound_is_refused_and_old_entries_still_move",
        declares="committed offsets; committed offsets in bytes",
    ),
    Row(
        "broker/group/subscription_groups.py SubscriptionGroups._groups",
        "groups without end",
        "subscription_groups_max, names checked",
        "tests/broker/group/test_subscription_groups.py::test_the_table_is_bounded",
        declares="subscription groups",
    ),
    Row(
        "broker/topic/topic_table.py TopicTable._topics TopicTable._changes",
        "topics without end",
        "topics_max, queues_max; the last 10,000 changes",
        "tests/broker/topic/test_topic_table.py::test_topics_and_queues_are_bounded"
        " tests/broker/topic/test_topic_table.py::test_changes_since_a_generation_are_known_until_too_many",
        declares="topics; queues",
    ),
    Row(
        "broker/ha/slave_mirror.py SlaveMirror._deleted SlaveMirror._early SlaveMirror._logged SlaveMirror._repeated;"
        " store/consumequeue/consume_queues.py ConsumeQueues._illegal_logged",
        "a false master's tables, records with ever new illegal names",
        "no more topics than this broker may have; a hundred names are logged",
        "tests/broker/ha/test_slave_mirror.py::test_a_masters_table_is_no_larger_than_ones_own_may_be"
        " tests/broker/ha/test_slave_mirror.py::test_a_table_full_of_lies_does_not_fill_the_log"
        " tests/store/disk/test_queue_paths.py"
        "::test_more_illegal_queues_than_anybody_reads_are_told_once_together",
    ),
    Row(
        "broker/lock/lock_table.py LockTable._groups LockTable._of_connection LockTable._leaving LockTable._awaited"
        " QueueLock.waiters; broker/lock/lock_manager.py LockManager._closed",
        "locks of ever new queues and groups",
        "queue_locks_max, their bytes, 16 waiters a lock; expired ones go first; a connection's locks end with it",
        f"tests/broker/test_bounds.py::test_a_table_never_exceeds_its_bound {_LOCKS}::test_waiters_are_bounded"
        f" {_LOCKS}::test_a_full_table_forgets_what_has_expired_first",
        declares="queue locks; queue locks in bytes",
    ),
    Row(
        "broker/pull/long_polling.py PullHolds._by_queue PullHolds._by_owner PullHolds._buckets Hold.queues;"
        " broker/pull/pull_service.py PullService._deferred",
        "held pulls en masse",
        "pull_holds_max, pull_holds_size_bytes_max; all of a connection end with it",
        "tests/broker/pull/test_long_polling.py::test_the_table_is_bounded_in_count_and_bytes"
        " tests/broker/pull/test_pull_service.py::test_a_closed_connection_loses_its_deferred_pulls_too",
        declares="held pulls; held pulls in bytes",
    ),
    Row(
        "broker/request/sweepable_queue.py SweepableQueue.tasks",
        "more requests than the threads serve",
        "each pair's queue in count and bytes, headers included; full is an answer",
        "tests/broker/request/test_sweepable_queue.py::test_any_order_of_calls_agrees_with_the_model"
        " tests/broker/request/test_executor.py::test_a_queue_counts_the_headers_of_its_requests_too",
        declares="waiting requests; waiting requests in bytes",
    ),
    Row(
        "broker/flow_control/refusal_stats.py RefusalStats._kinds RefusalStats._windows; remoting/refused_requests.py"
        " RefusedRequests._kinds RefusedRequests._versions",
        "refusals of ever new kinds, versions and languages",
        "256 kinds, 32 versions, the rest is counted as others; texts are cut",
        "tests/broker/flow_control/test_refusal_stats.py::test_kinds_are_bounded_and_nothing_is_lost"
        " tests/remoting/test_refused_requests.py::test_a_peer_cannot_make_it_grow",
        declares="kinds of refusals; kinds of refused requests",
    ),
    Row(
        "broker/send/short_routes.py ShortRoutes.known ShortRoutes._queues Route.permitted",
        "ever new headers that the short path remembers",
        "headers in count and bytes, queues in count; a full table starts again",
        "tests/broker/send/test_short_path.py::test_remembered_headers_are_bounded_in_bytes",
    ),
    Row(
        "broker/send/short_rocketmq.py ShortRocketMQ._routes; broker/send/short_rocketmq_answers.py"
        " RocketMQRoute.answers RocketMQRoute.long_answers RocketMQRoute.permitted;"
        " broker/send/short_rocketmq_templates.py Templates.long Templates.usual",
        "ever new headers and properties in RocketMQ's forms",
        "20,000 routes of 4 KiB with 64 users, 4,096 kinds of properties of 1 KiB, twenty lengths of an offset",
        "tests/broker/send/test_short_rocketmq.py::test_each_odd_kind_of_properties",
    ),
    Row(
        "broker/send/send_checks.py SendChecks._open; broker/delay/delivery.py Deliverer._targets;"
        " store/index/index_keys.py KeyHasher._prefixes; common/record_codec.py PlainRecordBuilder._templates",
        "sends to ever new topics",
        "10,000, 4,096 and 8,192 topics, then the cache starts again; only topics that exist",
        "tests/broker/topic/test_topic_table.py::test_topics_and_queues_are_bounded"
        " tests/common/test_record_codec.py::test_the_builder_forgets_templates_when_full",
    ),
    Row(
        "common/plain_rules.py PlainChecker.ends PlainChecker.tails PlainChecker.topics",
        "ever new properties in native sends",
        "in count and in bytes of each",
        "tests/common/test_plain_check.py::test_the_cache_is_bounded",
    ),
    Row(
        "broker/transaction/transaction_table.py TransactionTable._pending TransactionTable._claimed"
        " TransactionTable._given_up TransactionTable._outcomes TransactionTable._ahead;"
        " broker/transaction/transaction_recovery.py TransactionProgress.checks",
        "half messages that nobody ends",
        "transaction_pending_max, 65,536 outcomes, 4,096 given up, 16 MiB of records in memory; each is given up after"
        " its time",
        f"{_OPEN}::test_the_memory_of_ended_transactions_is_bounded"
        " tests/broker/stories/test_transactions.py::test_transactions_can_be_forbidden_and_limited",
        declares="open transactions; half records in memory; outcomes; given-up half messages",
    ),
    Row(
        "broker/transaction/transaction_commits.py CommitTails.known; broker/transaction/transaction_records.py"
        " HalfRecords._targets HalfRecords._tags_codes; broker/transaction/transaction_service.py"
        " TransactionService._turns",
        "half messages with ever new tags and properties of 32 KiB, and ever new groups",
        "4,096 of at most a KiB, then the cache starts again; 10,000 groups",
        "tests/broker/transaction/test_transaction_commits.py::test_long_properties_and_tags_are_not_remembered",
    ),
    Row(
        "broker/staged/id_owners.py IdOwners.users IdOwners.ids",
        "transactional ids of one user after the other",
        "10,000; of the user with the most, the one that was used longest ago goes",
        "tests/broker/staged/test_id_owners.py::test_owners_are_bounded_and_those_that_are_used_stay"
        " tests/broker/staged/test_id_owners.py::test_a_user_with_many_ids_drives_out_only_its_own",
        declares="owners of transactional ids",
    ),
    Row(
        "broker/staged/staged_table.py StagedTable._ids StagedTable.deliveries StagedTable._parts;"
        " broker/staged/staged_state.py KnownId.open KnownId.done KnownId.brokers Open.attempts Attempt.chunks"
        " Attempt.topics Delivery.chunks Delivery.done Done.participants; broker/staged/staged_log.py"
        " StagedLog.repairs; broker/staged/staged_service.py StagedService._waiting",
        "staged transactions under ever new names, with ever new attempts",
        "10,000 names, bounds of versions, attempts and chunks, bytes of all; brief names and attempts that stand still"
        " make room; attempts expire",
        f"{_STAGED}::test_brief_names_make_room_for_new_ones {_STAGED}::test_who_waits_for_a_delivery_is_counted"
        f" {_STAGED}::test_many_attempts_expire_in_several_events",
        declares="staged transactional ids; staged attempts; staged chunks",
    ),
    Row(
        "broker/stats/stats_items.py StatsItems._items; broker/stats/topic_put_stats.py TopicPutStats._ends",
        "statistics of ever new topics and groups",
        "20,000 items, 65,536 queues; what stands still is forgotten",
        "tests/broker/stats/test_stats_items.py::test_items_are_bounded",
        declares="statistics",
    ),
    Row(
        "broker/stats/counters.py BrokerCounters.pulled BrokerCounters.dead_letters; broker/metrics/label_text.py"
        " LabelTexts.texts; broker/metrics/topic_figures.py TopicFigures._ends TopicFigures._traffic;"
        " broker/metrics/group_figures.py GroupFigures._lags GroupFigures._lines Lag.offsets Lag.times;"
        " broker/metrics/figures.py"
        " Figures.messages_out Figures.bytes_out Figures.dead_letters Figures.producers Figures.consumers"
        " Figures.texts",
        "series of ever new topics, groups and versions of clients",
        "series_max label sets, the rest is `other`; 65,536 last pulls, 4,096 groups with dead letters, 10,000 times"
        " and 256 kinds of clients; queues and offsets have bounds of their own",
        "tests/broker/metrics/test_rocketmq_metrics.py::test_the_number_of_series_is_bounded"
        " tests/broker/metrics/test_rocketmq_metrics.py::test_a_lag_that_stands_still_is_not_read_again",
        declares="label sets of metrics; last pulls; groups with dead letters",
    ),
    Row(
        "broker/delay/timer_wheel.py TimerWheel._slots TimerWheel._order TimerWheel._runs;"
        " broker/delay/timer_queue.py TimerQueue._corrected TimerQueue._block_due",
        "delayed messages without end, entries that lie about their time",
        "a number of timers in memory, the others wait in their queue; a bound for each second",
        "tests/broker/delay/test_timer_wheel.py::test_beyond_its_memory_it_forgets_the_last_and_says_where"
        " tests/broker/delay/test_delay_plan.py::test_too_many_in_one_second_are_refused_for_a_while"
        " tests/broker/delay/test_delay_service.py::test_more_timers_than_memory_are_found_again_in_their_queue",
    ),
    Row(
        "remoting/http_server.py HttpServer._peers _Peer.received _Peer.sending",
        "connections and headers without end at the HTTP port",
        "a number of connections, bytes and seconds of a request",
        "tests/remoting/test_http_server.py::test_slow_and_excess_connections_are_closed",
    ),
    Row(
        "broker/metrics/slow_requests.py SlowRequests._slowest SlowRequests._windows",
        "slow requests without end",
        "the slowest of the last minute, ten events a second",
        "tests/broker/metrics/test_slow_requests.py::test_the_slowest_of_the_last_minute_are_kept"
        " tests/broker/metrics/test_slow_requests.py::test_at_most_ten_a_second_of_one_cause_and_the_rest_is_counted",
    ),
    Row(
        "namesrv/route_table.py RouteTable._topics RouteTable._topics_of RouteTable._brokers RouteTable._clusters"
        " RouteTable._live RouteTable._addresses_of",
        "registrations of ever new brokers and topics",
        "brokers_max, topics_max, routes_size_bytes_max, lengths of each text",
        f"{_ROUTES}::test_the_table_is_bounded {_ROUTES}::test_bytes_are_bounded"
        f" {_ROUTES}::test_any_order_of_events_leaves_a_consistent_table",
    ),
    Row(
        "namesrv/kv_table.py KVTable._table",
        "keys and values without end",
        "kv_entries_max, kv_size_bytes_max",
        "tests/namesrv/test_kv_table.py::test_entries_and_bytes_are_bounded",
    ),
    Row(
        "namesrv/epochs.py EpochTable.records; namesrv/epoch_store.py EpochStore._waiting; namesrv/claims.py"
        " Claims._fenced",
        "claims of ever new names",
        "epochs_max, a tenth of them for names without a registration, 1,024 waiting claims, 16 addresses of refused"
        " masters a name; invented names make room",
        "tests/namesrv/test_epochs.py::test_the_table_is_bounded"
        " tests/namesrv/test_epochs.py::test_invented_names_keep_no_pair_out",
    ),
    Row(
        "remoting/server.py RemotingServer.connections RemotingServer._of_host RemotingServer._silent;"
        " remoting/frame_budget.py FrameBudget._holders"
        " FrameBudget._paused",
        "connections without end",
        "connections_max, connections_per_address_max of one host; those that have said nothing make room for new ones,"
        " and end after two minutes; half frames share half_frames_bytes_max; `/health` says when connections are"
        " refused",
        "tests/remoting/test_server.py::test_connections_beyond_the_limit_are_closed_at_once"
        " tests/remoting/test_server.py::test_one_address_has_its_share"
        " tests/remoting/test_server.py::test_silent_connections_give_way_to_new_ones"
        " tests/broker/metrics/test_metrics.py::test_health_names_its_reasons"
        " tests/remoting/test_server.py::test_idle_connections_are_closed"
        " tests/remoting/test_server.py::test_a_flood_of_half_frames_stays_in_the_budget",
        declares="connections; half-received frames",
    ),
    Row(
        "remoting/output.py Output._buffers",
        "answers that nobody reads",
        "4 MiB stop the reading, 64 MiB close it, 128 MiB of all together close the one with most",
        "tests/remoting/test_unread_answers.py::test_too_many_unread_answers_close_the_connection_with_most"
        " tests/remoting/test_unread_answers.py::test_unread_answers_beyond_the_hard_limit_close_the_connection",
    ),
    Row(
        "remoting/acceptor.py Acceptor._callers Acceptor._protocols Acceptor._tasks Acceptor._refused;"
        " remoting/handshakes.py Handshakes._waiting Handshakes._open Handshakes._open_of_host",
        "silent connections and half handshakes without end",
        "each counts as a connection from its first moment (connections_max, connections_per_address_max), ends after"
        " tls.handshake_timeout_mills, and gives way to others after two seconds",
        "tests/remoting/test_acceptor.py::test_silent_and_slow_ones_count_and_are_closed_in_time"
        " tests/remoting/test_acceptor.py::test_silent_ones_give_way_where_there_are_too_many"
        " tests/remoting/test_acceptor.py::test_a_peer_that_leaves_before_its_handshake_leaves_nothing",
    ),
    Row(
        "remoting/turns.py Turns._waiting Backlog._frames",
        "many small requests with every read, over many connections",
        "one read of 16 KiB a connection, which is not read again before its backlog is served or while its answers are"
        " unread; all backlogs together take 5 ms of a turn of the loop",
        "tests/remoting/test_turns.py::test_flooding_peers_are_served_in_turn"
        " tests/remoting/test_turns.py::test_a_peer_that_does_not_read_waits_with_its_backlog"
        " tests/remoting/test_turns.py::test_reads_widen_for_long_frames_and_narrow_for_small_ones",
    ),
    Row(
        "remoting/pending.py PendingTable.entries; remoting/channel.py ClientChannel._drained",
        "a peer that answers nothing",
        "65,535 of a channel, 64 of a server's question to a client; each has a deadline",
        "tests/remoting/test_channel.py::test_too_many_pending_requests_are_refused"
        " tests/remoting/test_pending.py::test_the_table_is_a_dict_with_deadlines",
        declares="requests to one peer",
    ),
    Row(
        "remoting/channel_pool.py ChannelPool._channels ChannelPool._connecting ChannelPool._backoffs",
        "routes that name ever new addresses",
        "4,096 addresses; closed channels make room",
        "tests/remoting/test_channel_pool.py::test_a_pool_holds_a_bounded_number_of_addresses",
    ),
    Row(
        "remoting/codec_json.py _Incoming.extFields; remoting/codec_msgpack.py MsgpackOuter.extra;"
        " store/ha/wire.py FrameDecoder._buffer",
        "a header, or a frame of the replication, as large as can be",
        "they live as long as their frame, whose size is bounded",
        "tests/remoting/test_codec.py::test_a_header_that_no_client_needs_is_refused_unread"
        " tests/store/ha/test_wire.py::test_a_stranger_takes_no_memory",
    ),
    Row(
        "store/ha/service.py HaService._peers HaService._slaves HaService._to_reap; store/ha/connection.py"
        " SlaveConnection._first; store/ha/recover.py _Recovery.peers _Recovery.answers _Peer.first;"
        " store/ha/proved_transport.py ProvedTransport._got",
        "connections at the replication port",
        "40 connections, 8 of an address before its HELLO; the oldest without a HELLO makes room; 16 slaves; a"
        " handshake of 5 s; while a master recovers, only nodes that followed it count",
        "tests/store/ha/test_refused_slaves.py::test_a_crowd_of_strangers_is_bounded_and_keeps_no_slave_out"
        " tests/store/ha/test_refused_slaves.py::test_one_address_has_few_connections_without_a_hello"
        " tests/store/ha/test_recover.py"
        "::test_strangers_keep_no_slave_out_and_their_word_and_bytes_count_for_nothing"
        " tests/store/ha/test_recover.py::test_strangers_do_not_count_as_slaves",
    ),
    Row(
        "store/ha/state.py _Content.slaves _Content.epochs",
        "slaves with ever new node ids, promotions without end",
        "64 followers, 512 epochs; a claim is never more than two promotions ahead",
        "tests/store/ha/test_state.py::test_the_list_of_followers_is_bounded"
        " tests/store/ha/test_epochs.py::test_a_table_is_bounded",
    ),
    Row(
        "store/ha/raw_append.py RawAppender._undispatched; store/ha/transfer.py LogTransfer._pending",
        "a group that never ends, a slave that does not read",
        "one group in memory, of at most a segment; the log is read as the slave takes it",
        "tests/store/ha/test_raw_append.py::test_a_group_larger_than_a_frame_waits_in_memory_once"
        " tests/store/ha/test_service.py::test_a_slow_slave_holds_neither_memory_nor_others",
    ),
    Row(
        "store/waiters.py Waiters._by_offset Waiters._by_deadline; store/commitlog/group_commit.py"
        " GroupCommit._leads GroupCommit._to_tell",
        "sends that wait for a disk or a slave",
        "262,144 waiters, and the one that syncs for itself, each with its deadline; more are answered at once",
        "tests/store/commitlog/test_group_commit.py::test_too_many_waiters_are_an_answer"
        " tests/store/commitlog/test_group_commit.py::test_while_a_sending_thread_hangs_in_a_sync_all_get_their_timeout"
        " tests/store/ha/test_group_transfer.py::test_more_waiters_than_fit_are_told_at_once",
    ),
    Row(
        "store/commitlog/group_feed.py GroupFeed._groups; store/commitlog/checksums.py ChecksumLog._pending"
        " HeldChecksums._held",
        "appends faster than the dispatch",
        "4,096 groups and 64 MiB of columns, 65,536 checksums; the rest is read from the log",
        "tests/store/test_dispatch.py::test_the_feed_is_bounded_in_bytes"
        " tests/store/test_dispatch.py::test_an_overflow_gives_the_same_files",
    ),
    Row(
        "store/consumequeue/consume_queues.py ConsumeQueues._queues ConsumeQueues._resident ConsumeQueues._dirty;"
        " store/commitlog/queue_offsets.py QueueOffsets.known",
        "one message in each of very many queues",
        "queues_max of the broker; 64 MiB of tails; open files by the cache",
        "tests/broker/topic/test_topic_table.py::test_topics_and_queues_are_bounded"
        " tests/store/test_dispatch.py::test_memory_of_tails_is_bounded",
    ),
    Row(
        "store/consumequeue/deleted_topics.py DeletedTopics._offsets",
        "topics that are created and deleted again and again",
        "100,000 whose messages are still in the log; then deletions are refused until retention has gone on",
        "tests/store/consumequeue/test_deleted_topics.py::test_the_table_is_bounded",
    ),
    Row(
        "store/disk/file_cache.py FileCache._files; store/commitlog/segment_queue.py SegmentQueue._reading",
        "reads of very many queues and segments",
        "a number of open files; the one used longest ago is closed",
        "tests/store/disk/test_file_cache.py::test_few_files_stay_open_and_all_can_be_read"
        " tests/store/commitlog/test_segment_queue.py::test_reading_handles_are_bounded",
    ),
    Row(
        "store/commitlog/commit_log.py CommitLog.damaged; store/commitlog/log_reader.py LogReader._damaged;"
        " store/recovery/log_scan.py LogScan._ranges ScanResult.damaged ScanResult.suspect"
        " ScanResult.groups_before_damage; store/recovery/recovery.py RecoveryReport.damaged RecoveryReport.suspect"
        " RecoveryReport.quarantined _DamageFile.damaged; store/recovery/suspects.py _QueueCheck.waiting"
        " _QueueCheck.believed _QueueCheck.refused",
        "a log taken over with damage everywhere",
        "neighbouring damage is one range; the log's size is the operator's",
        "tests/store/recovery/test_log_scan.py::test_whatever_one_record_becomes_the_others_are_found"
        " tests/store/offline/test_hostile.py::test_a_file_of_nothing_but_candidates_ends_in_time",
    ),
    Row(
        "common/logs.py Logs._queue Repeats._kinds; common/runner.py Supervisor._counts Supervisor._last_ns",
        "events and failures without end",
        "a queue in count and bytes; kinds of events and of tasks are bounded",
        "tests/common/test_logs.py::test_the_queue_is_bounded_in_bytes_too"
        " tests/common/test_supervised.py::test_failures_are_reported_rarely_and_counted_in_a_bounded_table",
    ),
    Row(
        "common/sql_filter.py _short() _long() _parser()",
        "ever new filters, of 16 KiB",
        "1,024 short and 16 long ones are kept; characters, depth and terms have limits",
        "tests/common/test_sql_filter.py::test_few_long_expressions_are_kept"
        " tests/common/test_sql_filter.py::test_limits",
    ),
    Row(
        "client/connection/route.py RouteTable._entries",
        "a false name server: routes with very many queues and brokers",
        "10,000 topics; of a route 1,000 brokers, 65,536 queues of each and 100,000 of all",
        "tests/client/connection/test_route.py::test_the_table_is_bounded"
        " tests/client/connection/test_route.py::test_an_absurd_route_is_cut_and_says_so",
    ),
    Row(
        "client/connection/reply_table.py ReplyTable._waiting; client/producer/request_reply.py Requests._futures"
        " Requests._introduced",
        "replies that nobody asked for, requests that nobody answers",
        "10,000 requests, each with its time; an unasked reply is refused",
        "tests/client/producer/test_request_reply.py::test_waiting_requests_are_bounded"
        " tests/client/producer/test_request_reply.py::test_a_push_of_a_java_broker_is_read_and_a_bad_one_is_answered",
    ),
    Row(
        "client/transaction/transaction_checks.py TransactionChecks._waiting TransactionChecks._places"
        " TransactionChecks._running TransactionChecks._sending TransactionChecks._decided",
        "a false broker checks transactions without end",
        "2,000 checks and 64 MiB wait, 16,384 decisions are remembered",
        "tests/client/transaction/test_transaction_checks.py::test_checks_that_wait_are_bounded",
    ),
    Row(
        "client/sender/fault_items.py FaultItems.avoided; client/sender/retry_budget.py RetryBudget._buckets;"
        " client/sender/attempt_log.py AttemptLog._kinds; client/connection/rocketmq_limits.py RocketMQLimits._logged;"
        " client/push/pull_failures.py PullFailures._kinds",
        "ever new brokers and answers",
        "4,096 brokers, 8 kinds of answers, 1,000 kinds of failed pulls, texts of 300 characters",
        "tests/client/sender/test_fault_items.py::test_the_number_of_items_is_bounded"
        " tests/client/sender/test_retry_budget.py::test_the_number_of_buckets_is_bounded"
        " tests/client/sender/test_attempt_log.py::test_kinds_are_bounded"
        " tests/client/push/test_pull_failures.py::test_what_it_remembers_is_bounded",
    ),
    Row(
        "client/producer/short_targets.py ShortTargets.topics ShortTargets._lines ShortTargets._unfit"
        " ShortTopic.targets ShortTopic.templates ShortTopic.sends ShortLine.pending",
        "routes that change with every refresh",
        "as many topics as a route table holds, their queues; a line for each connection",
        "tests/client/producer/test_short_targets.py::test_topics_and_templates_are_bounded",
    ),
    Row(
        "client/handlers/process_queue.py ProcessQueue._open ProcessQueue._done; client/handlers/worker_pool.py"
        " PoolQueue.messages PoolQueue.timers; client/handlers/ordered_queue.py OrderedRunner.messages"
        " OrderedRunner.attempts; client/push/message_stream.py MessageStream._waiting MessageStream._open"
        " MessageStream._spans",
        "a broker that sends faster than handlers work",
        "messages, bytes and span of a queue and a topic stop its pull",
        "tests/client/handlers/test_process_queue.py::test_limits_by_count_size_and_span"
        " tests/client/push/test_push_consumer.py::test_the_limits_pause_the_pull",
    ),
    Row(
        "client/handlers/process_telemetry.py ProcessTelemetry._failed",
        "messages without end that handlers fail with",
        "1,024 spans are remembered, then the oldest is forgotten: a hand-over lacks its parent",
        "tests/client/handlers/test_process_telemetry.py::test_the_spans_of_failed_messages_are_bounded",
    ),
    Row(
        "client/trace/trace.py TraceDispatcher._queue TraceDispatcher._sending",
        "a broker that takes no trace",
        "8,192 records, then they are dropped and counted",
        "tests/client/trace/test_trace.py::test_a_full_queue_drops_and_counts",
    ),
    Row(
        "broker/admin/assignments.py Assignments._asking Assignments._kept",
        "questions for the queues of ever new topics (QUERY_ASSIGNMENT)",
        "1,000 questions under way, 1,000 answers kept for 5 s",
        "tests/broker/admin/test_assignments.py::test_waiting_questions_are_bounded",
    ),
    Row(
        "broker/delay/arrivals.py Arrivals._caps Arrivals._ends Arrivals._skew_from Arrivals._skews",
        "delayed messages without end, and a clock that is set again and again",
        "65,536 moments a level; skews older than the next message are forgotten",
        "tests/broker/delay/test_arrivals.py::test_what_it_remembers_is_bounded"
        " tests/broker/delay/test_delay_service.py::test_a_level_keeps_its_delay_whatever_the_clock_does",
    ),
    Row(
        "broker/group/group_notifier.py GroupNotifier._quiet",
        "a crowd that joins and leaves groups",
        "one notice a group and 200 ms; a group that is gone leaves nothing",
        "tests/broker/group/test_group_notifier.py::test_a_crowd_that_joins_gets_two_notices_each"
        " tests/broker/group/test_group_notifier.py::test_a_group_that_is_gone_leaves_nothing",
        declares="groups with notices",
    ),
    Row(
        "broker/request/fair_queue.py FairQueue._served",
        "one connection with ever new filters",
        "each connection has its turn; the set is that of one round",
        "tests/broker/request/test_fair_queue.py::test_each_connection_has_its_turn",
    ),
    Row(
        "broker/transaction/transaction_table.py TransactionTable._of_group",
        "half messages of ever new groups",
        "a name for each group with half messages, which are bounded; above half of them, a tenth for one group; the"
        " last fifth for groups with producers, where those without one are given up early",
        f"{_OPEN}::test_a_group_cannot_fill_the_table {_OPEN}::test_the_last_fifth_is_for_groups_with_producers",
    ),
    Row(
        "namesrv/holders.py Holders._questions _Question.waiting",
        "registrations under names whose brokers live, each of which asks the present holder",
        "64 requests that wait, 8 for one holder, 32 MiB; 2 s without an answer, and the holder counts as gone",
        "tests/namesrv/test_holders.py::test_those_that_wait_are_bounded"
        " tests/namesrv/test_holders.py::test_all_that_want_one_place_share_one_question",
    ),
    Row(
        "namesrv/route_table.py RouteTable._topic_bytes_of; namesrv/server.py NamesrvApp._left_out",
        "brokers with many topics, or with ever new illegal ones",
        "one number a broker, 64 brokers and half of the bytes for one connection; 100 illegal topics are logged",
        f"{_ROUTES}::test_one_connection_takes_a_share_only tests/namesrv/test_server.py"
        "::test_illegal_topics_of_a_registration_are_left_out_and_logged_once",
    ),
    Row(
        "store/ha/members.py Members._admitted",
        "slaves with ever new node ids that were registered",
        "1,024 node ids, then the set starts again; the name servers must know each under this broker's name",
        "tests/store/ha/test_members.py::test_a_crowd_of_node_ids_is_not_remembered_for_ever"
        " tests/store/ha/test_members.py::test_a_node_that_is_not_admitted_gets_the_log_and_nothing_else",
    ),
]
