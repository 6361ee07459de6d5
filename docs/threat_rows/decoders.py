"""Decoders: every module that makes values of bytes that somebody else wrote."""

from typing import Final

from docs.threat_rows.row import Quiet, Row

_JSON = "tests/test_decode_errors.py::test_a_decoder_of_json_raises_our_errors_only"
_PACKED = "tests/test_decode_errors.py::test_a_decoder_of_msgpack_raises_our_errors_only"
_FILES = "tests/test_small_files.py::test_a_flipped_bit_of_a_table_never_forgets_silently"
_FLIPS = "tests/sim/test_bit_flips.py::test_a_flipped_bit_of_the_log"
_OTHERS = "tests/sim/test_bit_flips.py::test_a_flipped_bit_of_any_other_file"
_OFFLINE = "tests/store/offline/test_hostile.py"

_HTTP2 = "tests/remoting/grpc/test_http2.py"

DECODERS: Final = [
    Row(
        "remoting/grpc/protobuf.py",
        "cut numbers, levels without end, a million fields, texts that are no UTF-8",
        "16 levels, 20,000 fields, known or not; only ProtobufIllegal comes out; nothing is built before it is counted",
        "tests/remoting/grpc/test_protobuf.py::test_any_bytes_are_read_or_refused"
        " tests/remoting/grpc/test_protobuf.py::test_changed_bytes_are_read_or_refused_and_nothing_else"
        " tests/remoting/grpc/test_protobuf.py::test_messages_in_messages_have_a_limit",
    ),
    Row(
        "remoting/grpc/http2.py; remoting/grpc/call.py",
        "rapid reset, floods of PING and SETTINGS, headers that unpack to gigabytes, messages of 4 GiB",
        "16 KiB a read and a call's headers, 100 cancelled calls and 2,000 frames without content a second; a message"
        " is refused from its first five bytes; one error closes one connection",
        f"{_HTTP2}::test_calls_that_are_cancelled_at_once_end_the_connection_and_start_nothing"
        f" {_HTTP2}::test_frames_without_content_end_the_connection"
        f" {_HTTP2}::test_headers_that_unpack_to_much_end_the_connection"
        f" {_HTTP2}::test_what_is_wrong_has_a_clear_status",
    ),
    Row(
        "broker/grpc/properties.py",
        "a small GZIP body that unpacks to gigabytes, properties with separators, a million of them",
        "unpacked to the largest message at most; 128 properties, 16 KiB, no control characters",
        "tests/broker/grpc/test_calls.py::test_a_message_that_is_not_legal_is_not_stored",
    ),
    Row(
        "remoting/frame.py",
        "announce 4 GiB, send half a frame and wait, send a byte a second",
        "16 MiB a frame, 2 MiB a header, refused from its first eight bytes; half frames share a budget in bytes, each"
        " has 30 s",
        "tests/remoting/test_frame.py::test_a_frame_above_the_limit_is_refused_from_its_first_bytes"
        " tests/remoting/test_frame.py::test_a_header_has_a_limit_of_its_own"
        " tests/remoting/test_frame.py::test_a_flood_of_newcomers_stays_in_the_budget"
        " tests/remoting/test_server.py::test_a_frame_that_never_ends_closes_the_connection",
    ),
    Row(
        "remoting/connection.py",
        "cut frames anywhere, mix codecs, answer what was not asked",
        "one error closes one connection, with one event; a header that cannot be read is answered",
        "tests/remoting/test_server.py::test_garbage_closes_the_connection_with_one_event"
        " tests/remoting/test_server.py::test_an_illegal_header_is_answered_and_the_connection_goes_on",
    ),
    Row(
        "remoting/security/signature.py; common/proof.py",
        "fields with any names and characters, signatures of any length",
        "values are joined and digested, nothing is parsed; constant time; never an exception",
        "tests/remoting/security/test_signature.py::test_any_fields_can_be_signed_and_verified"
        " tests/remoting/security/test_signature.py::test_a_changed_request_is_not_verified",
    ),
    Row(
        "store/ha/proved_transport.py",
        "begin with anything, echo, repeat a recorded proof, send bytes before a proof",
        "fixed lengths; nothing behind a wrong proof is read or sent; the handshake's deadline counts",
        "tests/store/ha/test_proved_transport.py::test_any_bytes_raise_transport_errors_only"
        " tests/store/ha/test_proved_transport.py::test_a_recorded_proof_opens_nothing"
        " tests/store/ha/test_proved_transport.py"
        "::test_a_master_that_echoes_and_knows_no_secret_is_refused_by_the_slave",
    ),
    Row(
        "auth/auth_table.py",
        "a file or a master's answer that is damaged, or has names of somebody else's",
        "typed decoders; each user and each entry is checked; all of it holds or nothing",
        "tests/auth/test_auth_table.py::test_a_damaged_file_raises_our_errors_only"
        " tests/auth/test_auth_file.py::test_a_damaged_file_is_never_an_empty_one"
        " tests/broker/stories/test_users_mirrored.py::test_what_a_master_sends_is_checked_before_it_holds",
    ),
    Row(
        "remoting/codec_json.py remoting/string_map.py".replace(" ", "; "),
        "100,000 levels, bad UTF-8, numbers of 5,000 digits, fields of another type",
        "2 MiB a header; typed decoders; only HeaderIllegal comes out",
        "tests/remoting/test_codec.py::test_hostile_json_is_refused"
        " tests/remoting/test_codec.py::test_garbage_raises_nothing_but_header_illegal",
    ),
    Row(
        "remoting/codec_binary.py",
        "lengths that point outside, below zero or into each other",
        "each length is checked against what is left; only HeaderIllegal comes out",
        f"tests/remoting/test_codec.py::test_damaged_headers_raise_nothing_but_header_illegal {_JSON}",
    ),
    Row(
        "remoting/codec_msgpack.py",
        "arrays of 2^32 elements, deep nesting, fields of another type",
        "typed decoders that allocate only what the bytes hold; fields that we do not know are skipped; of a header"
        " that is refused only the beginning is read for the answer",
        "tests/remoting/test_codec.py::test_hostile_msgpack_is_refused"
        f" tests/remoting/test_codec.py::test_a_long_header_that_is_refused_is_not_decoded {_PACKED}",
    ),
    Row(
        "remoting/protocol/body.py; remoting/protocol/lenient.py; remoting/fastjson.py; remoting/protocol/relay.py",
        "bodies of 16 MiB that are rewritten, or decoded twice",
        "fastjson's dialect is tried for small bodies only; depth is bounded; only BodyIllegal comes out",
        "tests/test_decode_errors.py::test_each_field_of_each_body_raises_our_errors_only"
        " tests/remoting/protocol/test_body.py::test_depth_is_bounded"
        " tests/remoting/protocol/test_lenient.py::test_a_large_body_must_be_right",
    ),
    Row(
        "remoting/refused_requests.py",
        "make the broker read the body of each refused request",
        "only heartbeats below 64 KiB are read for their client id",
        "tests/remoting/test_refused_requests.py::test_a_peer_cannot_make_it_grow",
    ),
    Row(
        "remoting/telemetry.py",
        "a broker sends an absurd snapshot to the doctor",
        "one kind of error, defaults for what is missing",
        "tests/remoting/test_telemetry.py::test_what_is_no_telemetry_is_one_kind_of_error",
    ),
    Row(
        "remoting/channel.py",
        "a false broker answers with garbage, wrong numbers, a length that swallows what follows, or not at all",
        "garbage closes the channel; so do three timeouts and 5 s without a whole frame (`remoting/silence.py`), and"
        " half a frame after 30 s; wrong numbers match nothing; an error belongs to its request",
        "tests/remoting/test_channel.py::test_a_server_that_answers_garbage_is_left"
        " tests/remoting/test_silence.py::test_a_channel_leaves_a_server_that_answers_nothing_whole"
        " tests/remoting/test_silence.py::test_half_a_frame_ends_it_after_its_time"
        " tests/remoting/test_channel.py::test_an_answer_without_its_fields_is_an_error_of_that_request"
        " tests/attack/test_answers.py::test_a_client_outlives_absurd_answers",
    ),
    Row(
        "broker/send/native_append.py; broker/send/native_half.py; common/plain_check.py; common/plain_rules.py;"
        " common/record_group.py",
        "records whose sizes, checksums or properties lie",
        "every byte of a record is judged; one verdict per record, whichever path checks it",
        "tests/common/test_plain_check.py::test_every_byte_of_a_record_is_judged_alike"
        " tests/broker/stories/test_send.py::test_a_frame_whose_sizes_disagree_is_refused_whole",
    ),
    Row(
        "broker/send/short_path.py",
        "frames that look plain and are not",
        "what is not plainly good takes the wide way, which alone words refusals",
        "tests/broker/send/test_short_path.py::test_odd_frames_get_the_words_of_the_wide_way",
    ),
    Row(
        "broker/send/short_rocketmq.py; broker/send/short_rocketmq_header.py; broker/send/short_rocketmq_templates.py",
        "sends in RocketMQ's forms that look plain and are not",
        "what is not plainly good takes the wide way, which alone words refusals",
        "tests/broker/send/test_short_rocketmq.py::test_odd_sends_get_the_words_of_the_wide_way"
        " tests/broker/send/test_short_rocketmq.py::test_a_shorter_id_at_the_end_is_not_taken_for_a_known_kind",
    ),
    Row(
        "broker/group/message_filter.py",
        "records whose properties a filter by SQL92 has to read",
        "records of this broker's log; a budget of 20 ms a pull and a thread for filters alone",
        "tests/broker/group/test_message_filter.py::test_a_filter_ends_where_its_budget_is_over"
        " tests/broker/group/test_message_filter.py::test_filters_have_a_thread_of_their_own",
    ),
    Row(
        "broker/send/rocketmq_send.py; broker/send/reply_processor.py",
        "batches cut anywhere, a million messages in one frame, properties of 64 KiB",
        "65,536 messages a batch, 32,767 bytes of properties, each length checked",
        "tests/broker/stories/test_send.py::test_a_torn_batch_is_refused"
        " tests/broker/stories/test_replies.py::test_replies_that_are_none_are_refused",
    ),
    Row(
        "client/pull/short_pull.py",
        "a broker whose answers to pulls have sizes, counts or offsets that do not fit",
        "what is not plainly good ends the run, and the usual way pulls again; the next offset never goes back",
        "tests/client/pull/test_short_pull.py::test_any_other_answer_ends_the_run"
        " tests/client/pull/test_short_pull.py::test_errors_end_the_run_as_errors",
    ),
    Row(
        "common/body_codec.py",
        "bombs: a small body that unpacks to gigabytes, a window of 2 GiB",
        "a limit in bytes for what comes out, a limit of the window, cut bodies are errors",
        "tests/common/test_body_codec.py::test_a_bomb_is_stopped_at_the_limit"
        " tests/common/test_body_codec.py::test_a_zstd_frame_cannot_ask_for_a_huge_window",
    ),
    Row(
        "common/record.py; common/record_codec.py; common/record_columns.py",
        "records in an answer or a log whose fields lie",
        "each length checked; both codecs refuse the same bytes",
        "tests/common/test_record_columns.py::test_damage_is_refused_by_both_codecs_alike"
        " tests/common/test_record_codec.py::test_garbage_is_refused",
    ),
    Row(
        "common/message.py; common/message_id.py; common/redelivery.py",
        "properties and ids that are no numbers",
        "readers are tolerant: what is no number counts as missing; ids are checked",
        "tests/common/test_record.py::test_readers_are_tolerant"
        " tests/common/test_message_id.py::test_other_texts_are_refused",
    ),
    Row(
        "broker/admin/consume_stats.py; broker/admin/consumer_relay.py",
        "bodies of requests and of clients' answers that are none",
        "decoded by type; an error belongs to the request",
        "tests/broker/group/test_message_filter.py::test_running_infos_of_rocketmqs_clients_are_read"
        " tests/attack/test_edges.py::test_no_request_at_the_edges_is_an_error_of_ours",
    ),
    Row(
        "broker/admin/settings_admin.py; broker/settings/live_settings.py",
        "a list of settings that is none, of bytes that are no text, with values of any kind; a changed file of them",
        "converted and validated like those of a start, all or none; a damaged file stops the start, with its backup",
        "tests/broker/stories/test_changed_settings.py::test_what_is_refused_changes_nothing"
        " tests/broker/settings/test_live_settings.py::test_a_value_that_is_illegal_by_now_is_forgotten",
    ),
    Row(
        "broker/delay/delivery.py; broker/delay/timer_queue.py; broker/delay/timer_wheel.py",
        "entries and records of delayed messages that lie about their time",
        "a message that cannot be delivered is reported and skipped; times beyond sense break nothing",
        "tests/broker/delay/test_delay_service.py::test_an_entry_that_lies_about_its_time_is_early_for_nobody"
        " tests/broker/delay/test_timer_wheel.py::test_times_beyond_all_sense_break_nothing",
    ),
    Row(
        "broker/transaction/transaction_commits.py; broker/transaction/transaction_records.py",
        "half records that are none",
        "an illegal half record is refused and leaves its group as it was",
        "tests/broker/transaction/test_transaction_commits.py::test_an_illegal_half_record_leaves_the_group_as_it_was",
    ),
    Row(
        "broker/staged/staged_records.py; broker/staged/staged_recovery.py",
        "events and chunks that lie",
        "length and checksum; an event that cannot be read is not written",
        f"tests/broker/stories/test_staged_limits.py::test_an_event_that_could_not_be_read_is_not_written {_PACKED}",
    ),
    Row(
        "store/ha/wire.py",
        "a false master or slave sends any frame with any number",
        "sizes by kind before the bytes come, checksums, numbers below 2^62, only kinds that are due; a HELLO fences no"
        " further than two promotions, a WELCOME beyond what a promotion reaches is not followed",
        "tests/store/ha/test_wire.py::test_a_stranger_takes_no_memory"
        " tests/store/ha/test_service_epochs.py::test_an_absurd_number_fences_no_further_than_a_promotion_goes"
        " tests/store/ha/test_following.py::test_a_slave_follows_no_epoch_that_no_promotion_can_have_reached"
        " tests/store/ha/test_wire.py::test_impossible_numbers_are_refused"
        " tests/store/ha/test_wire.py::test_a_kind_that_is_not_due_is_refused",
    ),
    Row(
        "store/ha/rocketmq_protocol.py",
        "reports that lie outside of the log",
        "refused; the protocol needs leave, and such a slave is never counted",
        "tests/store/ha/test_rocketmq_slaves.py::test_a_report_outside_of_the_log_is_refused"
        " tests/store/ha/test_rocketmq_slaves.py::test_rocketmqs_protocol_needs_leave",
    ),
    Row(
        "store/ha/raw_append.py",
        "a false master sends records with illegal topics and offsets",
        "whole records with their checksums; an illegal topic is skipped and reported once",
        "tests/store/disk/test_queue_paths.py::test_a_slave_skips_illegal_records_of_a_copied_log"
        " tests/store/disk/test_queue_paths.py::test_a_queue_offset_that_no_queue_reaches_is_skipped",
    ),
    Row(
        "broker/ha/slave_mirror.py",
        "a false master sends tables that delete, fill or move",
        "tables only from the node that streams the log; names, numbers and sizes as a request's",
        "tests/broker/stories/test_ha_pair.py::test_tables_come_only_from_the_node_that_streams_the_log"
        " tests/broker/ha/test_slave_mirror.py::test_a_masters_table_is_no_larger_than_ones_own_may_be",
    ),
    Row(
        "remoting/http_server.py",
        "any bytes instead of HTTP, slow and endless headers",
        "a number of bytes and seconds for a request, a number of connections, two methods",
        "tests/remoting/test_http_server.py::test_any_bytes_get_an_answer"
        " tests/remoting/test_http_server.py::test_slow_and_excess_connections_are_closed"
        " tests/remoting/test_http_server.py::test_a_page_sees_its_request",
    ),
    Row(
        "auth/http_access.py",
        "bytes that are no credentials, guessed passwords",
        "what cannot be read counts as none; names and passwords are compared in constant time; 50 wrong ones of an"
        " address a second, then none is looked at",
        "tests/auth/test_http_access.py::test_whatever_is_no_credentials_is_asked_for_some"
        " tests/auth/test_http_access.py::test_guessing_is_slow_for_its_address_alone",
    ),
    Row(
        "remoting/tcp_info.py",
        "a kernel that tells less, a socket that closes meanwhile",
        "unknown figures",
        "tests/remoting/test_tcp_info.py::test_what_cannot_tell_gives_unknown_figures",
    ),
    Row(
        "broker/delay/delay_offsets.py; broker/group/consumer_offsets.py; broker/group/subscription_groups.py;"
        " broker/ha/master_address.py; broker/lock/fencing_tokens.py; broker/topic/topic_table.py;"
        " broker/transaction/transaction_recovery.py; broker/group/request_modes.py; broker/pop/ordered_batches.py;"
        " broker/pop/pop_snapshot.py",
        "a bit of a small file is flipped, a file is empty or of another program",
        "a checksum, a required key, a backup that is never replaced by what was not read soundly",
        f"{_FILES} tests/test_small_files.py::test_what_was_not_read_soundly_never_becomes_the_backup {_JSON}",
    ),
    Row(
        "broker/pop/revive_log.py",
        "check points that are no JSON, or of other groups, sent to RocketMQ's topic before the first start",
        "read once, where no state of ours is; what cannot be read is counted; offsets below the committed one alone,"
        " 64 a check point, as many as may be in flight",
        "tests/broker/pop/test_revive_log.py::test_what_rocketmq_left_in_flight_is_in_flight_here",
    ),
    Row(
        "client/simple/pop_wire.py",
        "a false broker answers pops with more than was asked for, sizes and offsets that lie",
        "more messages, or sizes that do not fill the body, are an error; an acknowledgement without its result"
        " confirms nothing",
        "tests/client/simple/test_pop_wire.py::test_answers_that_lie_are_errors",
    ),
    Row(
        "common/recall_handle.py",
        "recall handles that are no Base64, or of other brokers and times",
        "1,024 characters, five fields, a time that is still to come",
        "tests/broker/stories/test_recall.py::test_a_handle_that_cannot_be_used_is_refused",
    ),
    Row(
        "broker/pop/ack_processor.py",
        "handles and bits of acknowledgements that are no such text, or huge",
        "512 characters and eight or nine fields a handle, each a number in its range; Base64 of 4,096 bits",
        "tests/broker/stories/test_pop.py::test_a_handle_counts_once_and_for_its_message_alone"
        " tests/broker/stories/test_pop.py::test_a_batch_of_acknowledgements"
        " tests/common/test_receipt_handle.py::test_any_text_is_a_handle_or_refused",
    ),
    Row(
        "broker/delay/rocketmq_timers.py",
        "damaged files of RocketMQ's timers",
        "a short or damaged file means no progress, and nothing is lost",
        "tests/broker/delay/test_rocketmq_timers.py::test_a_flipped_bit_of_timercheck_is_not_another_broker",
    ),
    Row(
        "namesrv/epochs.py",
        "a damaged or older file of epochs",
        "the start is refused: an older epoch would let a replaced master return",
        "tests/test_small_files.py::test_a_flipped_bit_of_the_epochs_is_refused"
        " tests/namesrv/test_epochs.py::test_a_damaged_file_stops_the_start",
    ),
    Row(
        "store/checkpoint.py; store/consumequeue/deleted_topics.py; store/ha/state.py; store/recovery/recovery.py",
        "damaged files of the store",
        "checksums; what cannot be believed is rebuilt from the log, or the start is refused with the way out",
        "tests/test_small_files.py::test_a_flipped_bit_of_the_positions_is_noticed"
        " tests/test_small_files.py::test_a_flipped_bit_of_the_deleted_topics_is_noticed"
        f" tests/test_small_files.py::test_a_flipped_bit_of_the_state_of_replication_is_refused {_OTHERS}",
    ),
    Row(
        "store/commitlog/log_reader.py; store/recovery/log_scan.py; store/recovery/scan_window.py;"
        " store/commitlog/checksums.py; store/commitlog/log_writer.py; store/commitlog/segment.py;"
        " store/commitlog/windows.py; store/message_store.py",
        "a log with damage anywhere, or taken over from somebody else",
        "damage is kept, reported and stepped over; good records behind it are found",
        f"{_FLIPS} tests/store/recovery/test_log_scan.py::test_whatever_one_record_becomes_the_others_are_found",
    ),
    Row(
        "store/commitlog/buffer_header.py; store/commitlog/buffer_record.py; store/commitlog/write_buffer_pool.py",
        "buffers in shared memory that another process wrote",
        "owner, boot, store and checksums must fit; a bad buffer never reaches the log",
        "tests/store/recovery/test_surviving_buffers.py::test_a_bad_buffer_never_reaches_the_log"
        " tests/store/recovery/test_surviving_buffers.py::test_a_file_cut_anywhere_is_refused",
    ),
    Row(
        "store/consumequeue/get.py; store/consumequeue/get_run.py; store/consumequeue/time_index.py",
        "queue entries that point anywhere",
        "a record of another size or place is refused; damaged ones are left to the single queue",
        "tests/store/consumequeue/test_get.py::test_a_record_of_another_size_is_refused"
        " tests/store/consumequeue/test_get_run.py::test_damaged_and_removed_records_are_left_to_the_single_queue",
    ),
    Row(
        "store/index/index_file.py; store/index/index_keys.py",
        "index files whose chains lead in circles",
        "a chain that points forward ends; a query ends after its time",
        "tests/store/index/test_index_file.py::test_a_chain_that_points_forward_ends"
        " tests/store/index/test_index.py::test_a_query_is_limited_in_time",
    ),
    Row(
        "store/offline/backup_note.py; store/offline/backup_parts.py",
        "a directory of somebody else is backed up, or is named as a backup to add to",
        "a note that does not fit refuses; small files are copied unread, below 64 MiB each",
        "tests/store/offline/test_backup.py::test_a_note_that_cannot_be_read_is_refused"
        " tests/store/offline/test_backup.py::test_random_bytes_in_every_file_end_in_a_copy_or_in_an_error_of_ours",
    ),
    Row(
        "store/offline/index_files.py; store/offline/log_walk.py; store/offline/queue_check.py;"
        " store/offline/record_check.py; store/offline/repair.py; store/offline/segment_bytes.py;"
        " store/offline/small_files.py",
        "a directory of somebody else is verified, dumped, exported or repaired",
        "random bytes are only findings; sizes that lie cost no memory; names are never followed",
        f"{_OFFLINE}::test_random_bytes_in_every_file_are_only_findings"
        f" {_OFFLINE}::test_a_size_that_lies_costs_no_memory"
        f" {_OFFLINE}::test_topics_in_records_are_never_paths",
    ),
    Row(
        "client/pull/pull_wire.py; client/pull/damaged.py; client/arrow/arrow.py; client/arrow/arrow_properties.py;"
        " client/arrow/lockstep.py; client/admin/admin.py; client/admin/access_admin.py;"
        " client/message/receipts.py; client/sender/sender.py; client/sender/rocketmq_send.py",
        "a false broker answers pulls and sends with records and results that lie",
        "damage is an error, an answer with too few results confirms nothing, unpacked bodies are bounded",
        "tests/client/arrow/test_arrow.py::test_damage_is_an_error_not_a_crash"
        " tests/client/arrow/test_lockstep.py::test_what_is_not_alike_is_left_alone"
        " tests/client/pull/test_damaged.py::test_an_answer_is_sorted_record_by_record"
        " tests/client/arrow/test_lockstep.py::test_values_are_those_of_the_scalar_parser"
        " tests/client/sender/test_answers.py::test_an_answer_with_too_few_results_confirms_nothing"
        " tests/attack/test_answers.py::test_a_client_outlives_absurd_answers",
    ),
    Row(
        "client/trace/trace_format.py",
        "messages in the trace topic that are no trace",
        "what cannot be read is left out",
        "tests/client/trace/test_trace_format.py::test_garbage_is_left_out",
    ),
    Row(
        "client/durable/entry.py; client/durable/ownership.py; client/durable/redis_store.py;"
        " client/durable/rocksdb_store.py; client/durable/sql_store.py; client/durable/sql_locks.py;"
        " client/durable/resender.py",
        "entries of a retry store that another program changed",
        "a version and a checksum in each entry; what an owner's record says is not believed blindly",
        "tests/client/durable/test_entry.py::test_any_flipped_bit_is_noticed"
        " tests/client/durable/test_ownership.py::test_what_a_record_says_is_not_believed_blindly",
    ),
    Row(
        "remoting/acceptor.py",
        "garbage behind the first byte of a TLS handshake, records of any length",
        "nine bytes are looked at; a first record that is no whole ClientHello ends the connection",
        "tests/remoting/test_acceptor.py::test_garbage_behind_the_first_byte_ends_the_connection"
        " tests/remoting/test_acceptor.py::test_a_hello_in_pieces_is_a_handshake_once_it_is_whole",
    ),
    Row(
        "client/pull/offsets.py",
        "a damaged file of offsets of a broadcasting consumer",
        "the file before it is taken",
        "tests/client/pull/test_offsets.py::test_a_damaged_broadcast_file_falls_back_to_the_one_before"
        " tests/test_decode_errors.py::test_files_of_the_name_server_and_the_client",
    ),
    Row(
        "client/handlers/typed_handler.py; common/value_codec.py",
        "bodies that are not of the type that a handler takes: broken, of other types, nested without end",
        "decoded by type; any error is a failure of that message alone, in one line of limited length",
        "tests/client/handlers/test_typed_handler.py::test_a_body_that_is_none_fails_in_one_clear_line"
        " tests/client/handlers/test_typed_handler.py::test_a_batch_goes_on_without_its_bad_bodies",
    ),
]

QUIET_DECODERS: Final = [
    Quiet(
        "remoting/grpc/inner_connection.py",
        "reads this broker's own answers in its own process",
    ),
    Quiet("broker/pop/pop_queue.py", "two times that it has put into one number itself"),
    Quiet(
        "broker/pop/pop_reader.py; broker/pop/revival.py", "records of the log, checked by the store when they are read"
    ),
    Quiet("broker/admin/auth_handlers.py", "a version that it has encoded itself"),
    Quiet("client/arrow/packed.py; client/arrow/row_records.py", "columns that the application gave"),
    Quiet("client/connection/rebalance.py", "numbers of a hash that it has computed itself"),
    Quiet(
        "client/idempotence/idempotent.py; client/idempotence/rocksdb_store.py; client/idempotence/sql_store.py",
        "marks of the application's own database",
    ),
    Quiet("client/sender/copy_sender.py", "text of a message that was decoded before"),
    Quiet("client/durable/worker.py", "the id of a message that this process sends"),
    Quiet("common/logs.py; common/settings.py; common/stacks.py", "bytes of this process and of its operator"),
    Quiet("store/disk/memory_lock.py; store/disk/os_file_system.py", "answers of the operating system"),
]
