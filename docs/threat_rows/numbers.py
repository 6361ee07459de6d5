"""Numbers that a peer sends: the numeric fields of all request headers."""

from typing import Final

from docs.threat_rows.row import Row

_EDGES = "tests/attack/test_edges.py::test_no_request_at_the_edges_is_an_error_of_ours"
_ADMIN = "tests/broker/stories/test_admin.py"

NUMBERS: Final = [
    Row(
        "queue_id queue_offset offset commit_offset commit_log_offset tran_state_table_offset from_offset index",
        "queues and offsets below zero, beyond the end, of 2^63",
        "Java's int and long at the codec; then the topic's queues and the ends of the queue or the log",
        "tests/broker/stories/test_pull.py::test_rocketmqs_codes_for_offsets_outside_the_queue"
        f" {_ADMIN}::test_commits_of_nonsense_are_refused {_EDGES}",
    ),
    Row(
        "max_msg_nums max_messages max_bytes max_msg_bytes max_num count locks_max last_epoch since_ms init_mode",
        "ask for 2^31 messages, bytes or rows",
        "the broker's own limit is the larger bound; below one is refused or one",
        f"tests/broker/stories/test_pull.py::test_rocketmqs_limits {_EDGES}",
    ),
    Row(
        "suspend_timeout_millis timeout_ms hold_ms heartbeat_timeout_millis poll_time poll_ms born_time",
        "hold a pull, a pop, a send or a master for years",
        "held pulls end after the broker's limit or with their connection; a hold of a master has a limit",
        "tests/broker/stories/test_pull.py::test_a_held_pull_ends_with_code_19"
        f" tests/broker/ha/test_ha_roles.py::test_a_hold_ends_by_itself_or_on_request {_EDGES}",
    ),
    Row(
        "born_timestamp store_timestamp timestamp begin_timestamp end_timestamp keep_hours",
        "times of the year 292 million, before 1970, of 2^63",
        "kept as they are where they are only shown; searches compare and never sleep by them",
        f"tests/broker/delay/test_timer_wheel.py::test_times_beyond_all_sense_break_nothing {_EDGES}",
    ),
    Row(
        "invisible_time invisible_ms settled",
        "messages that are invisible for years, or for a time below zero",
        "1 ms to 12 h, else refused; acknowledgements name what is in flight, or change nothing",
        "tests/broker/stories/test_pop.py::test_what_may_not_be_popped_is_refused"
        f" tests/broker/stories/test_pop.py::test_a_changed_time_has_a_new_handle {_EDGES}",
    ),
    Row(
        "delay_level reconsume_times max_reconsume_times",
        "a level that is none, attempts below zero",
        "levels end at 18, attempts at the group's limit, then the dead letters",
        f"tests/broker/send/test_send_back.py::test_levels_and_limits_decide {_EDGES}",
    ),
    Row(
        "read_queue_nums write_queue_nums default_topic_queue_nums queue_nums perm topic_sys_flag group_sys_flag",
        "a topic of 2^31 queues, permissions that are none",
        "65,536 queues, known bits; a file with other numbers is damaged",
        f"{_ADMIN}::test_impossible_topics_are_refused"
        " tests/test_small_files.py::test_numbers_of_a_topic_are_those_of_a_request",
    ),
    Row(
        "flag sys_flag action request_source sub_version version commit_or_rollback body_crc32",
        "bits and versions that nobody has",
        "unknown bits are stored or ignored as in RocketMQ; a version only orders; unknown decisions are refused",
        f"tests/broker/stories/test_transactions.py::test_bad_ends_are_told_apart_and_change_nothing {_EDGES}",
    ),
    Row(
        "sections queues ends attempts",
        "arrays of a million entries, counts that do not fit the body",
        "limits of their length; counts must fit the bytes",
        "tests/broker/stories/test_send.py::test_a_frame_whose_sizes_disagree_is_refused_whole"
        " tests/broker/stories/test_pull.py::test_a_native_pull_of_none_or_too_many_queues_is_refused",
    ),
    Row(
        "epoch broker_id fencing_token",
        "an epoch that nobody can pass, a broker's id of 2^63, a token from the future",
        "two promotions above the known one; ids are RocketMQ's; a token fences only its own lock",
        "tests/namesrv/test_epochs.py::test_an_absurd_claim_takes_no_pair_out"
        " tests/store/ha/test_service_epochs.py::test_an_absurd_number_fences_no_further_than_a_promotion_goes"
        " tests/broker/ha/test_ha_roles.py::test_an_epoch_that_leaves_no_room_is_never_promised"
        " tests/broker/lock/test_lock_manager.py::test_an_administrator_takes_away_the_lock_that_was_seen",
    ),
]
