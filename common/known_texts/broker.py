"""What RocketMQ's brokers write when they refuse, wait or fail: answers and log lines, with cause and cure.

Lives here: ``BROKER_ROWS``. A row's ``source`` is the class of RocketMQ that has the texts (4.9.8 and 5.3.3, other
versions where marked).
"""

from dataclasses import replace
from typing import Final

from pocketmq.common.errors import Cause, Stored
from pocketmq.common.known_texts.words import NO_ONE, NOT_AGAIN, STATUS_AGAIN, of_refusals, texts
from pocketmq.common.refusal_row import Fault, Request, Row, Side, Text
from pocketmq.common.refusals import REFUSALS

_HELD: Final = (
    replace(
        REFUSALS[Cause.PAGE_CACHE_BUSY],
        key="os_page_cache_busy",
        texts=(
            Text("OS_PAGECACHE_BUSY", 2, code_4_9=1, by=Side.BROKER_LOG),
            Text("OS_PAGE_CACHE_BUSY", 2, code_4_9=1, by=Side.BROKER_LOG),
            Text("OSPageCacheBusy", by=Side.BROKER_LOG),
            Text("OS page cache busy, please try another machine", 1),
        ),
        docs="docs/sending.md#page_cache_busy",
        source="DefaultMessageStore, PutMessageStatus, AdminBrokerProcessor",
    ),
    Row(
        cause=Cause.PAGE_CACHE_BUSY,
        key="append_slow",
        what="an append held the lock of the log for more than 500 ms",
        why="The message was stored; everything that waited behind it was late. Above 1,000 ms the broker calls its "
        "page cache busy and refuses sends. Page faults, write-back of dirty pages and a busy disk make appends stall.",
        texts=texts(
            Side.BROKER_LOG,
            "[NOTIFYME]putMessage in lock cost time(ms)",
            "[NOTIFYME]putMessages in lock cost time(ms)",
            "putMessage not in lock elapsed time(ms)",
            "not in lock elapsed time(ms)",
        ),
        stored=Stored.YES,
        retried="no client: the message is stored",
        fault=Fault.SERVER,
        cure=REFUSALS[Cause.PAGE_CACHE_BUSY].cure,
        price=REFUSALS[Cause.PAGE_CACHE_BUSY].price,
        bad_cures=REFUSALS[Cause.PAGE_CACHE_BUSY].bad_cures,
        scenario="pcbusy",
        area="page cache",
        docs="docs/sending.md#page_cache_busy",
        source="CommitLog",
    ),
    replace(
        REFUSALS[Cause.QUEUE_FULL],
        key="thread_pool_busy",
        texts=texts(
            Side.BROKER_LOG, "too many requests and system thread pool busy, RejectedExecutionException", code=2
        ),
        docs="docs/sending.md#queue_full",
        source="NettyRemotingAbstract",
    ),
    Row(
        cause=Cause.NO_WRITE_BUFFER,
        key="create_file_failed",
        what="the next file of the log could not be made",
        why="The disk has no room or fails, it takes longer than 5 s to make a file of 1 GiB, or, with the "
        "write-buffer pool and fastFailIfNoBufferInStorePool, no buffer is free.",
        texts=(
            of_refusals("create mapped file failed, server is busy or broken."),
            *texts(Side.BROKER, "Create mapped file failed.", code=1),
            *texts(
                Side.BROKER_LOG,
                "CREATE_MAPEDFILE_FAILED",
                "CREATE_MAPPED_FILE_FAILED",
                "create mapped file1 error, topic: %s",
                "create mapped file2 error, topic: %s",
                "create mmap timeout %s",
                "[NOTIFYME]TransientStorePool is not enough, so create mapped file error",
                code=1,
            ),
        ),
        fault=Fault.OPERATOR,
        cure="Look at the free space and the health of the disk (pocketmq doctor disk DIR, dmesg).",
        bad_cures=("smaller files of the log: they are made more often, on the same disk",),
        area="disk",
        docs="docs/sending.md#no_write_buffer",
        source="SendMessageProcessor, CommitLog, AllocateMappedFileService",
    ),
    Row(
        cause=Cause.NO_WRITE_BUFFER,
        key="pool_low",
        what="few write buffers are free",
        why="The disk takes less than producers send, so that buffers come back late. With none left the broker "
        "answers [REJECTREQUEST].",
        texts=texts(
            Side.BROKER_LOG,
            "TransientStorePool only remain %s sheets.",
            "[NOTIFYME]TransientStorePool is not enough, so skip preallocate mapped file",
            request=Request.OTHER,
        ),
        retried=NO_ONE,
        fault=Fault.SERVER,
        cure=REFUSALS[Cause.NO_WRITE_BUFFER].cure,
        price=REFUSALS[Cause.NO_WRITE_BUFFER].price,
        bad_cures=REFUSALS[Cause.NO_WRITE_BUFFER].bad_cures,
        scenario="reject-request",
        area="pool",
        docs="docs/sending.md#no_write_buffer",
        source="TransientStorePool",
    ),
)

_STORED: Final = (
    Row(
        cause=Cause.TIMEOUT,
        key="flush_disk_timeout",
        what="the message is stored, and was not on the disk in time",
        why="With SYNC_FLUSH a send waits for the sync of the log, 5 s at most. The sync hangs or the disk is slow. "
        "The message is in the page cache: it survives the death of the process, not that of the machine.",
        texts=(
            Text("FLUSH_DISK_TIMEOUT", 10),
            Text("do groupcommit, wait for flush failed", 10, by=Side.BROKER_LOG),
        ),
        stored=Stored.YES,
        retried=STATUS_AGAIN,
        fault=Fault.OPERATOR,
        cure="Measure the syncs: pocketmq doctor disk DIR. A disk with a write cache that survives a power loss, or "
        "the log on a disk of its own.",
        price="A better disk.",
        bad_cures=(
            "ASYNC_FLUSH: the status is gone, and with it the promise that a message survives a power loss",
            "a longer syncFlushTimeout: sends wait longer for the same disk",
        ),
        area="flush",
        docs="docs/durability.md#the-promise",
        source="PutMessageStatus, CommitLog (up to 4.5 and in 5.3)",
    ),
    Row(
        cause=Cause.TIMEOUT,
        key="flush_slave_timeout",
        what="the message is stored on the master, and no slave confirmed it in time",
        why="A SYNC_MASTER waits for a slave (3 s; 5 s up to 4.9.2). The slave is connected and does not move: its "
        "disk hangs or refuses writes, it pauses, or it is too slow. In RocketMQ up to 4.9.2 the sends wait one after "
        "the other, so that thousands of them wait for hours and their clients see sendDefaultImpl call timeout.",
        texts=(
            of_refusals("FLUSH_SLAVE_TIMEOUT"),
            Text("transfer messsage to slave timeout, %s", 12, by=Side.BROKER_LOG, source="HAService (up to 4.9.2)"),
            Text("transfer message to slave timeout, offset : %s", 12, by=Side.BROKER_LOG, source="5.x"),
            Text("do sync transfer other node, wait return, but failed", 12, by=Side.BROKER_LOG, source="up to 4.9.2"),
        ),
        stored=Stored.YES,
        retried=STATUS_AGAIN,
        fault=Fault.PEER,
        cure="Look at the slave: its disk, its log, its lag (pocketmq ha status; 'Slave fall behind' in RocketMQ). "
        "Stop a slave that cannot write: then sends end at once with SLAVE_NOT_AVAILABLE. A second slave, of which "
        "one must confirm, hides the loss of one.",
        price="Without the slave there is one copy; a second slave is a further machine.",
        bad_cures=(
            "ASYNC_MASTER: what the slave lacks is lost with the master",
            "a longer slaveTimeout: senders wait longer for a slave that does not move",
        ),
        scenario="slave-frozen",
        area="slaves",
        docs="docs/replication.md#what-each-status-promises",
        source="PutMessageStatus, GroupTransferService",
    ),
    Row(
        cause=Cause.TIMEOUT,
        key="slave_not_available",
        what="the message is stored on the master, and no slave was there to copy it",
        why="No slave is connected to the SYNC_MASTER, or all lack more than haSlaveFallbehindMax (256 MiB). The "
        "master does not wait for them. From a slave the same code means that a transaction ends only on its master.",
        texts=(of_refusals("SLAVE_NOT_AVAILABLE"),),
        stored=Stored.YES,
        retried=STATUS_AGAIN,
        fault=Fault.OPERATOR,
        cure="Start the slave, or find out why it cannot follow: pocketmq ha status.",
        price="None.",
        bad_cures=("ASYNC_MASTER: the status is gone, and what no slave has is lost with the master",),
        scenario="slave-killed",
        area="slaves",
        docs="docs/replication.md#what-each-status-promises",
        source="PutMessageStatus, CommitLog",
    ),
    Row(
        cause=Cause.NOT_MASTER,
        key="replicas_not_enough",
        what="fewer copies are in sync than the broker demands",
        why="inSyncReplicas or minInSyncReplicas (5.x) asks for more brokers than are alive and close enough.",
        texts=(
            Text("in-sync replicas not enough", 1),
            Text("IN_SYNC_REPLICAS_NOT_ENOUGH", 1, by=Side.BROKER_LOG),
        ),
        fault=Fault.OPERATOR,
        cure="Bring the missing slave back, or lower the number for as long as it is away.",
        price="With a lower number fewer copies exist when a send is acknowledged.",
        scenario="slave-killed",
        area="slaves",
        docs="docs/replication.md#which-slaves-count",
        source="SendMessageProcessor (5.x)",
    ),
)

_AWAY: Final = (
    Row(
        cause=Cause.DISK_FULL,
        key="store_not_writable",
        what="the store takes no messages",
        why="The text lists what it may be: the disk is more than 90 % full (CL, CQ and INDEX in the text are the used "
        "shares), an error while writing the queues or the index, the broker is a slave or stops. RocketMQ up to 4.5 "
        "names too little memory, which it does not check.",
        texts=(
            of_refusals("service not available now"),
            *texts(
                Side.BROKER,
                "service not available now, maybe disk full, %s, maybe your broker machine memory too small.",
                "maybe your broker machine memory too small",
                "service not available now. It may be caused by one of the following reasons",
                "Service not available now.",
                "SERVICE_NOT_AVAILABLE",
                code=14,
            ),
            *texts(
                Side.BROKER_LOG,
                "the message store is not writable. It may be caused by one of the following reasons",
                "message store has shutdown, so putMessage is forbidden",
                "broke role is slave, so putMessage is forbidden",
                request=Request.OTHER,
            ),
        ),
        stored=Stored.NO,
        fault=Fault.OPERATOR,
        cure="Look at the disk first (df), then at the store's log and dmesg. Free space: sends resume by themselves. "
        "Keep messages for less time (fileReservedTime).",
        price="Messages that are kept for less time cannot be read again.",
        bad_cures=(
            "a higher diskSpaceWarningLevelRatio: the disk is full a little later, and then writes fail",
            "more memory: it is not checked",
        ),
        area="disk",
        docs="docs/durability.md#when-the-disk-fails-while-the-broker-runs",
        source="SendMessageProcessor, DefaultMessageStore",
    ),
    Row(
        cause=Cause.DISK_FULL,
        key="disk_nearly_full",
        what="the disk of the store is nearly full",
        why="Above 75 % old files are deleted at any hour, above 85 % whatever their age, above 90 % sends are "
        "refused.",
        texts=texts(
            Side.BROKER_LOG,
            "physic disk maybe full soon %s, so mark disk full",
            "physic disk of commitLog maybe full soon, used %s, so mark disk full",
            "logics disk maybe full soon %s, so mark disk full",
            "disk space will be full soon, but delete file failed.",
            request=Request.OTHER,
        )
        + texts(Side.SYSTEM, "No space left on device", request=Request.OTHER),
        retried=NO_ONE,
        fault=Fault.OPERATOR,
        cure="Free space or add some; keep messages for less time (fileReservedTime; store.file_reserved_time here).",
        price="Messages that are kept for less time cannot be read again.",
        bad_cures=("a higher diskSpaceWarningLevelRatio: the disk is full a little later, and then writes fail",),
        area="disk",
        docs="docs/durability.md#what-is-removed-and-when",
        source="DefaultMessageStore",
    ),
    replace(
        REFUSALS[Cause.READ_ONLY],
        key="read_only_file_system",
        texts=texts(Side.SYSTEM, "Read-only file system", code=14),
        retried="RocketMQ 4.9, 5.3 and PocketMQ try another broker, where the text comes in an answer (code 14)",
        scenario="slave-readonly",
        docs="docs/durability.md#when-the-disk-fails-while-the-broker-runs",
    ),
    Row(
        cause=Cause.SHUTTING_DOWN,
        key="not_yet_in_service",
        what="the broker takes no messages before a time that its settings name",
        why="startAcceptSendRequestTimeStamp is set.",
        texts=(Text("broker unable to service, until %s", 1),),
        fault=Fault.OPERATOR,
        cure="Wait, or remove the setting.",
        docs="docs/sending.md#shutting_down",
        source="SendMessageProcessor",
    ),
    Row(
        cause=Cause.CONFIG,
        key="already_started",
        what="a broker could not start because another one runs",
        why="The lock file of the store, or the port, belongs to another process.",
        texts=texts(Side.SYSTEM, "Lock failed,MQ already started", "Address already in use", request=Request.OTHER),
        retried=NO_ONE,
        fault=Fault.OPERATOR,
        cure="Stop the other one, or give this one its own directory and port.",
        bad_cures=("removing the lock file: two brokers then write into one log",),
        docs="docs/offline.md",
        source="DefaultMessageStore",
    ),
    Row(
        cause=Cause.NO_PERMISSION,
        key="access_denied",
        what="the broker's access control refuses the client",
        why="aclEnable (4.9) or authenticationEnabled (5.3) is on, and the client has no key, another key, or no "
        "right to the topic or group. In 4.9 the code is 1, so that producers try again for nothing.",
        texts=(
            *texts(
                Side.BROKER,
                "No accessKey is configured",
                "No acl config for %s",
                "No PlainAccessResource for accessKey=%s",
                "Check signature failed for accessKey=%s",
                "No default permission for %s",
                "Need admin permission for request code=%s",
                code=1,
            ),
            *texts(
                Side.BROKER,
                "Authentication failed. Please verify the credentials and try again.",
                "Authorization failed. Please verify your access rights and try again.",
                "check signature failed.",
                "User:%s is not found",
                "has no permission to access",
                code=16,
            ),
        ),
        fault=Fault.CLIENT,
        cure="Give the client the key (AclClientRPCHook, tools.yml for mqadmin) and the account the right "
        "(plain_acl.yml; mqadmin createUser, createAcl in 5.3). PocketMQ has no access control yet.",
        bad_cures=("switching access control off",),
        docs="docs/sending.md#no_permission",
        source="PlainPermissionManager, DefaultAuthenticationEvaluator (5.3)",
    ),
    Row(
        cause=Cause.BAD_REQUEST,
        key="request_not_supported",
        what="the server does not know this request code",
        why="The client or tool is newer than the server, or talks to the wrong one (a broker's request at the name "
        "server).",
        texts=(Text("request type %s not supported", 3),),
        retried=NOT_AGAIN,
        fault=Fault.CLIENT,
        cure="Check the address, then the versions. docs/compatibility.md lists every code that PocketMQ serves.",
        docs="docs/compatibility.md",
        source="NettyRemotingAbstract",
    ),
    Row(
        cause=Cause.NOT_MASTER,
        key="change_on_slave",
        what="a slave was asked to change a topic or a group",
        why="Slaves copy topics and groups from their master.",
        texts=(
            Text(
                "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
                1,
                request=Request.OTHER,
            ),
        ),
        retried=NO_ONE,
        fault=Fault.CLIENT,
        cure="Send the command to the master: pocketmq brokers names it.",
        docs="docs/replication.md#operating",
        source="AdminBrokerProcessor",
    ),
)

BROKER_ROWS: Final = (*_HELD, *_STORED, *_AWAY)
"""Refused and slow sends; stored ones with a status; a broker that is not available."""
