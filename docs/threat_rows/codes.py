"""Request codes: what a request may do, by the code that carries it."""

from typing import Final

from docs.threat_rows.row import Row

_EDGES = "tests/attack/test_edges.py::test_no_request_at_the_edges_is_an_error_of_ours"
_ALL = "tests/broker/stories/test_every_request_code.py"
_ADMIN = "tests/broker/stories/test_admin.py"
_OPEN = "tests/broker/transaction/test_transaction_table.py"
_OPERATOR = "tests/broker/stories/test_operator_requests.py"

CODES: Final = [
    Row(
        "HELLO",
        "ask for anything the channel can do",
        "answered by the connection from constants",
        f"tests/remoting/test_server.py::test_hello_is_answered_by_the_remoting_layer {_EDGES}",
    ),
    Row(
        "AUTHENTICATE",
        "guess secrets, repeat a recorded proof, ask without end",
        "a proof answers the nonce of its connection; a wrong one ends the connection; compared in constant time",
        "tests/remoting/test_guard.py::test_a_wrong_proof_ends_the_connection"
        " tests/common/test_proof.py"
        "::test_a_proof_is_good_for_one_secret_one_user_and_one_pair_of_nonces",
    ),
    Row(
        "AUTH_CREATE_USER AUTH_UPDATE_USER AUTH_DELETE_USER AUTH_CREATE_ACL AUTH_UPDATE_ACL AUTH_DELETE_ACL"
        " UPDATE_AND_CREATE_ACL_CONFIG DELETE_ACL_CONFIG UPDATE_GLOBAL_WHITE_ADDRS_CONFIG",
        "make oneself a super user, lock everybody out",
        "Update on the cluster; super users are made and changed by super users, the last one stays; refused where"
        " nobody has to authenticate",
        "tests/auth/test_auth_admin.py::test_only_a_super_user_makes_changes_or_deletes_super_users"
        " tests/auth/test_auth_admin.py::test_the_last_super_user_stays"
        " tests/auth/test_plain_admin.py::test_an_admin_is_a_super_user_and_only_super_users_make_or_take_one"
        " tests/auth/test_plain_admin.py::test_no_address_is_let_in_without_a_user"
        " tests/auth/test_auth_admin.py::test_a_server_that_knows_no_users_makes_none",
    ),
    Row(
        "AUTH_GET_USER AUTH_LIST_USER AUTH_GET_ACL AUTH_LIST_ACL AUTH_LOG AUTH_TEST AUTH_CONTENTS WHOAMI"
        " GET_BROKER_CLUSTER_ACL_INFO",
        "read passwords, learn who may do what",
        "Get on the cluster; no answer has a password but that for slaves, which wants a super user",
        "tests/auth/test_auth_admin.py::test_no_answer_and_no_event_shows_a_password"
        " tests/auth/test_auth_admin.py::test_all_contents_are_for_super_users_only",
    ),
    Row(
        "HEART_BEAT CHECK_CLIENT_CONFIG",
        "fill the tables of clients, change what a group is subscribed to",
        "2 MiB a heartbeat, refused before it is decoded; lengths of each text, groups per heartbeat, clients and"
        " their bytes; one notice a group and 200 ms; closed only by authentication: a stranger joins any group and"
        " takes a share of its queues",
        "tests/broker/group/test_client_processor.py::test_a_heartbeat_beyond_a_limit_is_refused"
        " tests/broker/group/test_client_processor.py::test_a_heartbeat_is_refused_by_its_length"
        " tests/broker/group/test_group_notifier.py::test_a_crowd_that_joins_gets_two_notices_each"
        " tests/broker/group/test_client_processor.py::test_clients_have_a_bound_in_bytes",
    ),
    Row(
        "UNREGISTER_CLIENT GET_CONSUMER_LIST_BY_GROUP",
        "take a client out of its group, list the members",
        "a client leaves only over its own connection; the list is encoded once for each change",
        f"{_ADMIN}::test_members_of_a_group_are_told_of_each_other"
        f" tests/broker/group/test_client_table.py::test_the_list_of_members_is_made_once_for_each_change {_EDGES}",
    ),
    Row(
        "SEND_MESSAGE SEND_MESSAGE_V2 SEND_BATCH_MESSAGE NATIVE_APPEND",
        "store anything in any topic that may be written, create topics, fill the disk",
        "sizes and properties checked before the append, topics_max, one bounded queue of requests in count and"
        " bytes, refusal above the disk's warning level; what is stored is closed only by authentication",
        "tests/broker/stories/test_send.py::test_what_is_not_stored_is_refused_with_the_reason"
        " tests/broker/stories/test_send.py::test_a_frame_whose_sizes_disagree_is_refused_whole"
        " tests/broker/test_app.py::test_the_send_queue_is_bounded_in_bytes"
        " tests/broker/stories/test_disk_errors.py::test_the_warning_level_refuses_sends",
    ),
    Row(
        "NATIVE_HALF_APPEND",
        "open transactions that nobody ends",
        "transaction_pending_max open ones: once they are half as many, a tenth for one group; the last fifth for"
        " groups with producers, and there those without one are given up early; their records in memory in bytes;"
        " each is given up after its time, or by hand",
        f"{_OPEN}::test_a_group_cannot_fill_the_table"
        f" {_OPEN}::test_the_last_fifth_is_for_groups_with_producers"
        f" {_OPEN}::test_half_messages_without_a_producer_make_room"
        f" {_OPEN}::test_the_memory_of_ended_transactions_is_bounded"
        " tests/cli/messages/test_transaction.py::test_open_ones_are_ended_by_hand"
        " tests/broker/transaction/test_transaction_plan.py::test_a_flag_without_the_property_is_refused",
    ),
    Row(
        "CONSUMER_SEND_MSG_BACK",
        "move a message to a retry topic or to the dead letters",
        "the record is read from the log and must be of the topic that is named; levels and attempts are bounded",
        "tests/broker/send/test_send_back.py::test_what_cannot_be_sent_back_is_refused_in_rocketmqs_words"
        " tests/broker/send/test_send_back.py::test_levels_and_limits_decide",
    ),
    Row(
        "SEND_REPLY_MESSAGE SEND_REPLY_MESSAGE_V2",
        "push a reply to a client that waits for none",
        "the requester must be connected and is named by the broker's own property; waiting pushes are bounded",
        "tests/broker/stories/test_replies.py::test_replies_that_are_none_are_refused"
        " tests/broker/stories/test_replies.py::test_replies_that_wait_are_bounded",
    ),
    Row(
        "PULL_MESSAGE LITE_PULL_MESSAGE",
        "read any topic, hold pulls, keep a thread with a filter that matches nothing",
        "messages and bytes of an answer, bytes read in vain; a filter by SQL92 has 20 ms, 512 comparisons a message"
        " and a thread of its own, in which connections take turns; held pulls in count and bytes, holds end with their"
        " connection; reading is closed only by authentication",
        "tests/broker/stories/test_pull.py::test_rocketmqs_limits"
        " tests/broker/stories/test_pull.py::test_a_filter_that_matches_nothing_says_go_on"
        " tests/broker/group/test_message_filter.py::test_a_filter_ends_where_its_budget_is_over"
        " tests/broker/group/test_message_filter.py::test_filters_have_a_thread_of_their_own"
        " tests/broker/request/test_fair_queue.py::test_each_connection_has_its_turn"
        " tests/broker/stories/test_pull.py::test_holds_go_with_their_connection"
        " tests/broker/stories/test_pull.py::test_too_many_held_pulls_are_answered_at_once",
    ),
    Row(
        "QUERY_ASSIGNMENT SET_MESSAGE_REQUEST_MODE GET_ALL_MESSAGE_REQUEST_MODE",
        "ask for the queues of ever new topics and groups, set a group to POP",
        "1,000 questions under way, 16,384 queues of a topic, 1,000 topics kept for 5 s; a member gets its share, a"
        " broadcasting client what the route says anyway; a mode is kept for a topic and a group that exist;"
        " administrators set it",
        "tests/broker/admin/test_assignments.py::test_waiting_questions_are_bounded"
        " tests/broker/admin/test_assignments.py::test_bad_questions"
        " tests/broker/admin/test_assignments.py::test_the_request_mode_is_kept_and_listed",
    ),
    Row(
        "POP_MESSAGE NATIVE_POP PEEK_MESSAGE NOTIFICATION POLLING_INFO",
        "take the messages of any group and never acknowledge them, hold pops, keep a thread with a filter",
        "10,000 messages of a queue and a million in all are in flight, then a pop gets none; 32 messages a request,"
        " 1,024 a native one; an invisible time of 12 h at most; 1,024 held pops for the same, 100,000 in all, each"
        " ends with its connection; a filter has 20 ms; reading is closed only by authentication",
        "tests/broker/stories/test_pop.py"
        "::test_a_queue_with_too_many_in_flight_gives_out_no_more_until_some_are_acknowledged"
        " tests/broker/stories/test_pop.py::test_what_may_not_be_popped_is_refused"
        " tests/broker/stories/test_pop.py::test_too_many_that_wait_are_answered_at_once"
        " tests/broker/pop/test_pop_ledger.py::test_limits_in_all",
    ),
    Row(
        "ACK_MESSAGE BATCH_ACK_MESSAGE CHANGE_MESSAGE_INVISIBLETIME NATIVE_SETTLE",
        "acknowledge what others have, handles that are forged, old, of other queues; change times without end",
        "a handle names broker, queue, offset, the time of the pop and the invisible time, and all of them must be"
        " those of a message in flight; 4,096 messages a request; changes leave no trace that grows",
        "tests/broker/stories/test_pop.py::test_a_handle_counts_once_and_for_its_message_alone"
        " tests/broker/stories/test_pop.py::test_a_batch_of_acknowledgements"
        " tests/broker/pop/test_pop_ledger.py::test_changes_without_end_keep_the_buckets_small",
    ),
    Row(
        "NATIVE_PULL",
        "name a thousand queues in one request",
        "1,024 different queues, one limit of messages and bytes for all of them; 20 ms, then the rest is asked for"
        " again; filters by SQL92 have 512 comparisons and a thread of their own; work ends with its connection",
        "tests/broker/stories/test_pull.py::test_a_native_pull_of_none_or_too_many_queues_is_refused"
        " tests/broker/stories/test_pull.py::test_a_native_pull_names_each_queue_once"
        " tests/broker/stories/test_pull.py::test_a_long_native_pull_ends_with_its_budget"
        " tests/common/test_sql_filter.py::test_the_work_for_one_message_is_bounded"
        " tests/broker/stories/test_pull.py::test_a_native_pull_keeps_its_bounds_and_starves_no_queue",
    ),
    Row(
        "QUERY_MESSAGE VIEW_MESSAGE_BY_ID QUERY_CONSUME_QUEUE",
        "search the whole index, read the log at any offset",
        "a query ends after its time, 8 MiB of records and max_num results; a record is shown only if it is in its"
        " queue",
        "tests/store/index/test_index.py::test_a_query_is_limited_in_time"
        " tests/store/test_message_store.py::test_a_record_is_read_only_where_one_starts"
        f" {_OPERATOR}::test_a_look_into_a_consume_queue {_ADMIN}::test_a_record_inside_a_body_is_not_viewed"
        f" {_ADMIN}::test_a_query_by_key_reads_no_more_than_it_may_answer",
    ),
    Row(
        "QUERY_CONSUMER_OFFSET UPDATE_CONSUMER_OFFSET",
        "move the offset of any group, make offsets of groups that do not exist",
        "only within the queue, only of existing topics, consumer_offsets_max entries in 256 MiB; a lock's token fences"
        " others; closed only by authentication",
        f"{_ADMIN}::test_commits_of_nonsense_are_refused"
        " tests/broker/group/test_consumer_offsets.py::test_offsets_are_bounded_in_bytes"
        " tests/broker/group/test_consumer_offsets.py"
        "::test_a_commit_over_the_bound_is_refused_and_old_entries_still_move"
        " tests/broker/lock/test_lock_manager.py::test_an_instance_that_lost_its_lock_cannot_commit",
    ),
    Row(
        "SEARCH_OFFSET_BY_TIMESTAMP GET_MAX_OFFSET GET_MIN_OFFSET GET_EARLIEST_MSG_STORETIME GET_ALL_CONSUMER_OFFSET"
        " GET_ALL_DELAY_OFFSET",
        "read facts about queues",
        "one queue each, found by binary search; tables are encoded once per request",
        f"{_ADMIN}::test_questions_about_one_queue {_EDGES}",
    ),
    Row(
        "INVOKE_BROKER_TO_RESET_OFFSET CLONE_GROUP_OFFSET",
        "set back a group, so that everything comes again",
        "offsets stay within the queue; the members are told once; closed only by authentication",
        f"{_ADMIN}::test_a_reset_moves_offsets_and_tells_the_members {_OPERATOR}::test_offsets_are_cloned",
    ),
    Row(
        "END_TRANSACTION NATIVE_END_TRANSACTION RESUME_CHECK_HALF_MESSAGE TRANSACTION_LIST",
        "end a transaction of somebody else",
        "the half record at the named offset must have the named group and queue offset, which a stranger must know",
        "tests/broker/stories/test_transactions.py::test_bad_ends_are_told_apart_and_change_nothing"
        f" {_ADMIN}::test_transactions_end_through_their_own_pair",
    ),
    Row(
        "STAGED_TRANSACTION_WRITE STAGED_TRANSACTION_END",
        "open staged transactions under invented names, fill the log",
        "names, versions, attempts and chunks are bounded; full is an answer; brief names and attempts that stand still"
        " make room; attempts expire",
        "tests/broker/stories/test_staged_limits.py::test_brief_names_make_room_for_new_ones"
        " tests/broker/stories/test_staged_limits.py::test_attempts_that_stand_still_make_room_for_others"
        " tests/broker/stories/test_staged_limits.py::test_a_large_chunk_is_refused_as_it_is_written"
        " tests/broker/stories/test_staged_limits.py::test_an_attempt_that_goes_on_for_days_expires",
    ),
    Row(
        "LOCK_BATCH_MQ UNLOCK_BATCH_MQ LOCK_LIST LOCK_RELEASE",
        "lock queues of a group so that nobody consumes them in order",
        "locks end with their time or connection, queue_locks_max, 16 waiters a lock; an administrator releases by"
        " token; closed only by authentication",
        "tests/broker/stories/test_lock_requests.py::test_garbage_is_refused_and_locks_nothing"
        " tests/broker/stories/test_lock_requests.py::test_a_hundred_thousand_queues_are_too_many"
        " tests/broker/stories/test_lock_requests.py::test_a_full_table_says_so",
    ),
    Row(
        "UPDATE_AND_CREATE_TOPIC UPDATE_AND_CREATE_TOPIC_LIST MAKE_TOPIC DELETE_TOPIC_IN_BROKER",
        "make topics without end, delete any topic",
        "names checked, topics_max, queues of a topic; deletion reaches only below the store; closed only by"
        " authentication",
        f"{_ADMIN}::test_impossible_topics_are_refused"
        " tests/broker/topic/test_topic_table.py::test_topics_and_queues_are_bounded"
        " tests/store/disk/test_queue_paths.py::test_no_topic_outside_the_store_is_deleted",
    ),
    Row(
        "GET_ALL_TOPIC_CONFIG GET_TOPIC_STATS_INFO GET_SYSTEM_TOPIC_LIST_FROM_BROKER GET_TOPIC_CONFIG",
        "ask for long answers again and again and not read them",
        "unread answers of a connection and of all together are bounded in bytes; the one with most is closed",
        "tests/remoting/test_unread_answers.py::test_too_many_unread_answers_close_the_connection_with_most"
        " tests/remoting/test_unread_answers.py::test_a_peer_that_does_not_read_is_closed_after_a_time",
    ),
    Row(
        "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST DELETE_SUBSCRIPTIONGROUP",
        "make groups without end, delete a group with its offsets",
        "names checked, subscription_groups_max; closed only by authentication",
        f"{_ADMIN}::test_groups_are_configured_listed_and_deleted"
        " tests/broker/group/test_subscription_groups.py::test_the_table_is_bounded",
    ),
    Row(
        "GET_ALL_SUBSCRIPTIONGROUP_CONFIG GET_CONSUMER_CONNECTION_LIST GET_PRODUCER_CONNECTION_LIST GET_CONSUME_STATS"
        " QUERY_TOPIC_CONSUME_BY_WHO QUERY_CONSUME_TIME_SPAN GET_BROKER_CONSUME_STATS GET_ALL_PRODUCER_INFO"
        " QUERY_TOPICS_BY_CONSUMER QUERY_SUBSCRIPTION_BY_CONSUMER GET_SUBSCRIPTIONGROUP_CONFIG GROUP_LIST",
        "keep the administration threads busy with sums over all groups",
        "a pair of its own: sends and pulls have other queues and threads; answers are bounded by the tables",
        f"{_OPERATOR}::test_consume_stats_of_all_groups {_ADMIN}::test_consume_stats_show_the_lag {_EDGES}",
    ),
    Row(
        "INVOKE_BROKER_TO_GET_CONSUMER_STATUS GET_CONSUMER_RUNNING_INFO CONSUME_MESSAGE_DIRECTLY",
        "make the broker ask a client, and wait for it",
        "64 unanswered requests to one client, each with a time; the end of either connection ends the question",
        "tests/broker/group/test_message_filter.py::test_a_client_that_goes_away_before_it_answers"
        " tests/broker/group/test_message_filter.py::test_questions_are_relayed_to_the_client",
    ),
    Row(
        "GET_BROKER_CONFIG GET_BROKER_RUNTIME_INFO VIEW_BROKER_STATS_DATA",
        "learn settings and statistics",
        "no setting is a secret and none can be changed",
        f"{_ADMIN}::test_the_broker_tells_its_settings_and_statistics {_OPERATOR}::test_stats_by_name",
    ),
    Row(
        "CLEAN_EXPIRED_CONSUMEQUEUE CLEAN_UNUSED_TOPIC DELETE_EXPIRED_COMMITLOG",
        "remove files before their time",
        "only what the rules of retention would remove, at most ten segments a round",
        "tests/store/retention/test_retention.py::test_on_demand_old_segments_go_now"
        f" {_OPERATOR}::test_queues_without_a_topic_are_removed",
    ),
    Row(
        "PUT_KV_CONFIG GET_KV_CONFIG DELETE_KV_CONFIG GET_KVLIST_BY_NAMESPACE",
        "fill the table of keys and values, change an order of queues",
        "entries and bytes; closed only by authentication",
        "tests/namesrv/test_kv_table.py::test_entries_and_bytes_are_bounded",
    ),
    Row(
        "REGISTER_BROKER UNREGISTER_BROKER QUERY_DATA_VERSION",
        "register false brokers and routes, take a broker off",
        "lengths, numbers, brokers, topics and bytes, 64 brokers a connection; a broker of replicas needs its epoch;"
        " a broker that lives keeps its place (unless broker_takeover_enable), one that does not answer within 2 s"
        " loses it, and no other connection unregisters it; closed only by"
        " authentication: names and places of brokers that are away",
        "tests/namesrv/test_route_table.py::test_texts_and_numbers_are_bounded"
        " tests/namesrv/test_route_table.py::test_bytes_are_bounded"
        " tests/namesrv/test_server.py::test_damaged_registrations_are_refused"
        " tests/namesrv/test_server.py::test_a_broker_that_lives_keeps_its_place"
        " tests/e2e/test_strangers.py::test_a_broker_that_stands_still_gives_way_and_finds_out_when_it_goes_on"
        " tests/namesrv/test_route_table.py::test_one_connection_takes_a_share_only",
    ),
    Row(
        "WIPE_WRITE_PERM_OF_BROKER ADD_WRITE_PERM_OF_BROKER DELETE_TOPIC_IN_NAMESRV",
        "take a route away from everybody",
        "the next registration of the broker that has it brings it back",
        "tests/namesrv/test_route_table.py::test_write_permission_is_wiped_until_a_changed_registration"
        " tests/namesrv/test_route_table.py::test_a_topic_that_a_broker_still_has_comes_back_after_its_deletion",
    ),
    Row(
        "GET_ROUTEINFO_BY_TOPIC GET_BROKER_CLUSTER_INFO GET_ALL_TOPIC_LIST_FROM_NAMESERVER GET_TOPICS_BY_CLUSTER"
        " GET_SYSTEM_TOPIC_LIST_FROM_NS GET_UNIT_TOPIC_LIST GET_HAS_UNIT_SUB_TOPIC_LIST"
        " GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST GET_NAMESRV_CONFIG",
        "learn all addresses and topics",
        "they are meant to be read; answers are bounded by the tables, unread ones in bytes",
        f"tests/namesrv/test_server.py::test_lists_permissions_and_deletion {_EDGES}",
    ),
    Row(
        "GET_BROKER_HA_STATUS GET_BROKER_EPOCH_CACHE HA_STATUS",
        "learn epochs, owners and slaves",
        "read only; a bounded number of epochs and slaves",
        f"{_OPERATOR}::test_replication_as_the_tools_of_5_3_ask tests/store/ha/test_epochs.py::test_a_table_is_bounded",
    ),
    Row(
        "HA_PROMISE HA_PROMOTE HA_DEMOTE HA_HOLD",
        "fence a master, start a promotion",
        "a promise is at most two promotions above what is known, a master gives it only to slaves that it has counted,"
        " a broker without replicas gives none; a false one fences the master until `pocketmq ha promote`, without a"
        " loss; a hold ends by itself; a promotion of a pair is closed only by authentication",
        "tests/broker/ha/test_ha_roles.py::test_a_promise_far_beyond_what_is_known_is_refused"
        " tests/broker/ha/test_ha_roles.py::test_a_broker_without_replicas_promises_no_epoch_of_another"
        " tests/e2e/test_strangers.py::test_a_false_promise_is_cured_by_a_promotion"
        " tests/broker/ha/test_ha_roles.py::test_a_hold_ends_by_itself_or_on_request",
    ),
    Row(
        "HA_EPOCH",
        "claim a name, or an epoch that nobody can pass, make the name server forget a pair",
        "a forced claim is at most two promotions ahead; a registered master is asked: it keeps its place unless it, or"
        " a counted slave that claims, has promised the epoch, or it does not answer within 2 s (one that reports no"
        " status is judged by the numbers alone); names that never registered make room; a plain broker is not"
        " bound by claims; a name is not forgotten while a broker of it is registered; claims are judged before they"
        " wait for the disk",
        "tests/namesrv/test_epochs.py::test_a_forced_claim_is_at_most_two_promotions_ahead"
        " tests/namesrv/test_epochs.py::test_no_claim_takes_the_place_of_a_master_that_lives"
        " tests/namesrv/test_epochs.py::test_a_master_on_a_half_open_connection_gives_way"
        " tests/namesrv/test_epochs.py::test_invented_names_keep_no_pair_out"
        " tests/namesrv/test_epochs.py::test_a_record_is_forgotten_once_no_broker_of_the_name_is_registered"
        " tests/namesrv/test_epochs.py::test_a_claim_of_a_megabyte_does_not_wait_for_the_disk"
        " tests/namesrv/test_epochs.py::test_a_strangers_claim_does_not_bind_a_broker_without_replicas",
    ),
    Row(
        "NOTIFY_CONSUMER_IDS_CHANGED CHECK_TRANSACTION_STATE RESET_CONSUMER_CLIENT_OFFSET"
        " GET_CONSUMER_STATUS_FROM_CLIENT PUSH_REPLY_MESSAGE_TO_CLIENT",
        "a false broker steers a client: rebalances, checks, offsets, replies",
        "checks that wait are bounded in count and bytes, replies must have been asked for, a failing handler harms no"
        " other request; which broker is right is closed only by authentication",
        "tests/client/transaction/test_transaction_checks.py::test_checks_that_wait_are_bounded"
        " tests/client/producer/test_request_reply.py::test_a_push_of_a_java_broker_is_read_and_a_bad_one_is_answered"
        " tests/remoting/test_channel.py::test_a_failing_callback_does_not_harm_the_others",
    ),
    Row(
        "RECALL_MESSAGE",
        "take back the delayed messages of others, fill the timers",
        "Pub on the topic of the message; its id has to be known; a recall is a timer as a send is, with the same"
        " limits, and no send can pass for one",
        "tests/broker/stories/test_recall.py::test_a_handle_that_cannot_be_used_is_refused"
        " tests/broker/stories/test_recall.py::test_no_send_passes_for_a_recall",
    ),
    Row(
        "UPDATE_BROKER_CONFIG",
        "let a broker write or run something else (CVE-2023-33246), or make it useless",
        "a list of settings that can change, none of them a path, an address or a command; validated like a start's,"
        " all or none, at most 1,000 of 1,000 characters; an event for each; with users it takes Update on the cluster",
        "tests/broker/stories/test_changed_settings.py::test_what_is_refused_changes_nothing"
        " tests/broker/settings/test_live_settings.py::test_all_or_none",
    ),
    Row(
        "QUERY_BROKER_OFFSET"
        " QUERY_CORRECTION_OFFSET GET_TOPIC_CONFIG_LIST GET_TOPIC_NAME_LIST WHO_CONSUME_THE_MESSAGE SUSPEND_CONSUMER"
        " RESUME_CONSUMER RESET_CONSUMER_OFFSET_IN_CONSUMER RESET_CONSUMER_OFFSET_IN_BROKER ADJUST_CONSUMER_THREAD_POOL"
        " TRIGGER_DELETE_FILES GET_TIMER_CHECK_POINT GET_TIMER_METRICS"
        " REGISTER_FILTER_SERVER REGISTER_MESSAGE_FILTER_CLASS REGISTER_TOPIC_IN_NAMESRV UPDATE_NAMESRV_CONFIG",
        "reach what RocketMQ does with them",
        "refused in RocketMQ's words before their fields are read",
        f"{_ALL}::test_what_is_not_served_is_refused_in_rocketmqs_words"
        " tests/namesrv/test_server.py::test_settings_are_shown_and_not_changed",
    ),
]
