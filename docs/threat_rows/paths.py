"""Paths: the modules that create, rename or remove what has a name in the file system."""

from typing import Final

from docs.threat_rows.row import Quiet, Row

_TREE = "tests/sim/test_file_system_contract.py::test_a_tree_is_removed_only_below_its_owners_directory"
_TOPICS = "tests/store/disk/test_queue_paths.py"

PATHS: Final = [
    Row(
        "store/disk/file_cache.py; store/disk/os_file_system.py",
        "a topic as a path: `../../x`, `/x`, NUL, 300 characters, a symbolic link",
        "one function makes the path of a queue and refuses what is no legal topic; a tree is removed only below the"
        " store",
        f"{_TOPICS}::test_a_path_lies_two_levels_below_the_queues_or_there_is_none"
        f" {_TOPICS}::test_no_other_code_makes_paths_of_queues {_TOPICS}::test_whatever_is_removed_lies_below_the_store"
        f" {_TREE} tests/store/disk/test_os_file_system.py"
        "::test_a_symbolic_link_leads_no_removal_out_of_its_owners_directory",
    ),
    Row(
        "store/consumequeue/deleted_topics.py",
        "a master, or a request, deletes a topic that is a path",
        "the name is checked where the deletion enters, and again where the path is made",
        f"{_TOPICS}::test_no_topic_outside_the_store_is_deleted"
        " tests/broker/ha/test_slave_mirror.py::test_a_hostile_masters_tables_remove_nothing_outside_the_store"
        " tests/e2e/test_strangers.py::test_a_false_master_reaches_nothing_outside_its_slaves_store",
    ),
    Row(
        "broker/persisted_table.py; broker/delay/delay_service.py; broker/delay/rocketmq_timers.py",
        "a directory removed under a running broker, copies of damaged files without end",
        "fixed names below the store; the directory is made again; few copies are set aside",
        "tests/test_small_files.py::test_the_copies_set_aside_are_bounded"
        " tests/store/test_message_store.py::test_a_directory_removed_under_a_running_store",
    ),
    Row(
        "namesrv/epoch_store.py",
        "a broker's name as a file",
        "one file for all names",
        "tests/namesrv/test_epochs.py::test_nonsense_is_refused"
        " tests/test_small_files.py::test_the_directory_of_the_epochs_is_made_again",
    ),
    Row(
        "store/commitlog/allocate.py; store/commitlog/checksums.py; store/commitlog/log_writer.py;"
        " store/commitlog/segment.py; store/index/index.py; store/checkpoint.py; store/opening.py",
        "offsets that name files without end",
        "names are offsets of this log, checked when the directory is read",
        "tests/store/commitlog/test_segment_queue.py::test_foreign_names_and_an_empty_last_file_are_ignored"
        " tests/store/commitlog/test_segment_queue.py::test_a_missing_file_in_between_is_refused",
    ),
    Row(
        "store/ha/state.py; store/ha/opening.py",
        "a false master orders a cut",
        "nothing confirmed is cut without an operator's word; what is cut is kept aside",
        "tests/store/ha/test_following.py::test_nothing_confirmed_is_cut"
        " tests/broker/ha/test_ha_roles.py::test_what_only_the_old_master_has_is_cut_and_kept_aside",
    ),
    Row(
        "store/recovery/quarantine.py; store/recovery/recovery.py; store/recovery/surviving_buffers.py;"
        " store/commitlog/buffer_record.py",
        "another store's buffers in shared memory",
        "buffers of other and of living owners are named and left",
        "tests/store/recovery/test_surviving_buffers.py::test_buffers_of_another_dead_store_are_named_and_left"
        " tests/store/recovery/test_surviving_buffers.py::test_a_live_owner_keeps_its_buffers",
    ),
    Row(
        "store/offline/copy_store.py; store/offline/files.py; store/offline/index_files.py; store/offline/layout.py;"
        " store/offline/read_only.py; store/offline/repair.py; store/offline/segment_bytes.py;"
        " store/offline/small_files.py",
        "a store of somebody else whose names lead elsewhere",
        "strange names are not followed; only repair and copy write, below the named directory",
        "tests/store/offline/test_hostile.py::test_strange_names_are_not_followed"
        " tests/store/offline/test_log_walk.py::test_the_read_only_file_system_refuses_every_change",
    ),
    Row(
        "store/offline/backup.py; store/offline/backup_log.py; store/offline/backup_parts.py",
        "a store of somebody else is backed up: names that lead elsewhere, links to files of its reader",
        "names of topics are checked, others have a fixed form; writes only below the target, small files as 0600",
        "tests/store/offline/test_backup.py::test_random_bytes_in_every_file_end_in_a_copy_or_in_an_error_of_ours"
        " tests/store/offline/test_backup.py::test_small_files_come_along_and_passwords_stay_private",
    ),
    Row(
        "auth/auth_file.py",
        "read the passwords in it",
        "the path is the operator's; mode 0600 from its first byte, and a file that others can read is refused",
        "tests/auth/test_auth_file.py::test_only_the_owner_can_read_it"
        " tests/auth/test_auth_file.py::test_a_file_that_others_can_read_is_refused",
    ),
    Row(
        "client/pull/offsets.py",
        "a route or a group as a file",
        "the directory is the application's; names of groups are checked",
        "tests/client/pull/test_offsets.py::test_a_broadcast_file_gives_back_what_was_saved",
    ),
]

QUIET_PATHS: Final = [
    Quiet(
        "auth/auth_admin.py; auth/auth_table.py; auth/denials.py; auth/server_auth.py;"
        " broker/app.py; broker/lock/lock_manager.py;"
        " broker/lock/lock_table.py; store/commitlog/surviving_pool.py",
        "`replace` and `open` of values",
    ),
    Quiet("client/handlers/handlers.py; store/disk/memory_lock.py", "names of functions only"),
    Quiet(
        "client/durable/rocksdb_store.py; client/durable/sql_store.py; client/durable/sql_locks.py",
        "the directory that the application named",
    ),
    Quiet(
        "common/logs.py; remoting/security/certificates.py; remoting/security/tls_files.py",
        "the file that the operator named",
    ),
]
