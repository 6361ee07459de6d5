"""The commit log: groups of records in, bytes in segments out.

    append_lock      one lock around each append; its hold time is the signal "page cache busy"
    commit_log       append: offsets, one copy, watermarks;  queue_offsets, log_writer
    segment, segment_queue, allocate   files of 1 GiB, in order, prepared in advance
    write_buffer_pool, windows, commit   appends to RAM, written to the files by a commit thread
    surviving_pool   buffers that outlive the process;  buffer_header, buffer_record, buffer_leftovers: their files
    group_feed       appended columns on their way to dispatch and replication
    flush, group_commit   timed flush; many waiting sends, one sync
    checksums        one CRC for each append group
    log_reader       records by offset

Always: appended >= committed >= flushed. Records are validated before the append (``broker.send``).
"""
