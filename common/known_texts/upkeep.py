"""What RocketMQ's brokers log about queue locks, copies on slaves, damage, connections and memory.

Lives here: ``UPKEEP_ROWS``. A row's ``source`` is the class of RocketMQ that has the texts (4.9.8 and 5.3.3, other
versions where marked).
"""

from typing import Final

from pocketmq.common.errors import Cause, Stored
from pocketmq.common.known_texts.words import NO_ONE, PULL_AGAIN, texts
from pocketmq.common.refusal_row import Fault, Request, Row, Side

_LOCKS: Final = (
    Row(
        cause=Cause.NONE,
        key="queue_locked_by_other",
        what="an ordered queue stands still for this consumer, since another client holds its lock",
        why="One client consumes an ordered queue at a time. A client that ends without its shutdown (kill -9, a "
        "container that is moved) keeps its locks until they expire, 60 s after the last renewal. For a moment the "
        "line is normal while queues move between members.",
        texts=(
            *texts(
                Side.BROKER_LOG,
                "message queue locked by other client",
                "message queue has been locked by other client",
                "mq locked by other client",
                request=Request.OTHER,
            ),
            *texts(
                Side.CONSUMER,
                "the message queue locked Failed, Group: %s",
                "add a new mq failed, %s, because lock failed",
                "the message queue not locked, so consume later",
                request=Request.OTHER,
            ),
        ),
        retried="the consumer: it asks for the lock again every few seconds, until the lock is free or expires",
        fault=Fault.PEER,
        cure="See who holds it: pocketmq lock list. Stop consumers gracefully (SIGTERM, and time for it). Shorter "
        "locks: renew every 5 s and expire after 15 s (rocketmq.broker.rebalance.lockMaxLiveTime; lock_max_live_time "
        "here). For a holder that is certainly dead: pocketmq lock release.",
        price="Shorter locks mean three times the renewals, and a pause of 15 s in a consumer moves its queues.",
        bad_cures=("restarting the waiting consumers: none of them holds the lock",),
        scenario="ordered-lock-stuck",
        area="locks",
        docs="docs/consuming.md#when-a-queue-stands-still",
        source="RebalanceLockManager, ProcessQueue, RebalanceImpl",
    ),
    Row(
        cause=Cause.NONE,
        key="queue_lock_expired",
        what="the lock of an ordered queue expired, and another client has it now",
        why="Its holder did not renew it for 60 s: it was killed, hung, or could not reach the broker. If it still "
        "lives and is merely late, both may handle a message.",
        texts=(
            *texts(
                Side.BROKER_LOG,
                "message queue lock expired, I got it.",
                "try to lock a expired message queue",
                request=Request.OTHER,
            ),
            *texts(Side.CONSUMER, "the message queue lock expired, so consume later", request=Request.OTHER),
        ),
        retried="the consumer that has the lock now goes on at the last committed offset",
        fault=Fault.PEER,
        cure="Find out why the old client did not stop gracefully: the line names it. Use fencing tokens where two "
        "handlers at once would do harm.",
        scenario="ordered-lock-stuck",
        area="locks",
        docs="docs/consuming.md#fencing-tokens",
        source="RebalanceLockManager, ConsumeMessageOrderlyService",
    ),
)

_COPIES: Final = (
    Row(
        cause=Cause.NOT_MASTER,
        key="slave_behind",
        what="a slave lacks part of the master's log",
        why="The line is written every minute. A few thousand bytes are normal; a number that grows is a slave that "
        "cannot follow, and above 256 MiB a SYNC_MASTER no longer waits for it.",
        texts=texts(Side.BROKER_LOG, "Slave fall behind master: %s bytes", request=Request.OTHER),
        retried=NO_ONE,
        fault=Fault.PEER,
        cure="Look at the slave's disk and network: pocketmq ha status.",
        scenario="slave-readonly",
        area="slaves",
        docs="docs/replication.md#what-a-slave-does",
        source="DefaultMessageStore",
    ),
    Row(
        cause=Cause.CORRUPT,
        key="slave_offset_differs",
        what="the logs of master and slave do not fit together",
        why="The slave has more than the master, or other bytes: the master lost the end of its log, the slave was a "
        "master before, or one of the directories is another broker's. RocketMQ connects and disconnects for ever.",
        texts=texts(
            Side.BROKER_LOG,
            "master pushed offset not equal the max phy offset in slave, SLAVE: %s MASTER: %s",
            "slave[%s] request offset=%s greater than local commitLog offset=%s",
            request=Request.OTHER,
        ),
        retried=NO_ONE,
        fault=Fault.OPERATOR,
        cure="Find out which of the two has the messages before anything is deleted; then start the other one from an "
        "empty directory. PocketMQ's pairs agree on the common end by themselves.",
        price="What only the other one has is lost: keep a copy of its directory.",
        bad_cures=("restarting both: they disagree again",),
        scenario="network-cut",
        area="slaves",
        docs="docs/replication.md#the-old-master-returns",
        source="HAService, HAConnection",
    ),
    Row(
        cause=Cause.CONNECTION,
        key="slave_silent",
        what="master and slave did not hear from each other for 20 s, and the connection was closed",
        why="The other machine is gone, pauses, or the network between the two is cut.",
        texts=texts(
            Side.BROKER_LOG,
            "ha housekeeping, found this connection[%s] expired",
            "HAClient, housekeeping, found this connection[%s",
            "HAClient, master not response some time, so close connection",
            request=Request.OTHER,
        ),
        retried="the slave: it connects again every 5 s",
        fault=Fault.PEER,
        cure="Check the network and the other machine: pocketmq ha status.",
        scenario="network-cut",
        area="slaves",
        docs="docs/replication.md#network-partitions",
        source="HAConnection, HAClient",
    ),
    Row(
        cause=Cause.CORRUPT,
        key="store_damaged",
        what="the broker found bytes in its store that do not belong there",
        why="A disk that lies, a power loss, or another program wrote there.",
        texts=texts(
            Side.BROKER_LOG,
            "[BUG]consume queue can not write",
            "[BUG]dispatch message to consume queue error, COMMITLOG OFFSET: %s",
            "[BUG]read total count not equals msg total size.",
            "CRC check failed. bodyCRC=%s, currentCRC=%s",
            "found a illegal magic code",
            request=Request.OTHER,
        ),
        retried=NO_ONE,
        fault=Fault.OPERATOR,
        cure="Stop the broker, copy the directory, and look: pocketmq log verify DIR reads RocketMQ's stores, too; "
        "pocketmq log repair DIR shows what it would do. A slave may have the bytes.",
        price="The repair cuts or skips what cannot be read.",
        bad_cures=("deleting consumequeue or index alone while the log is damaged: they are built from it",),
        area="disk",
        docs="docs/offline.md",
        source="CommitLog, DefaultMessageStore",
    ),
    Row(
        cause=Cause.CODEC,
        key="frame_illegal",
        what="bytes arrived that are no frame of RocketMQ's protocol, or a frame that is too large",
        why="Another protocol talks to this port (HTTP, TLS without its setting, a port scanner), or a batch exceeds "
        "16 MiB.",
        texts=texts(
            Side.BROKER_LOG,
            "decode error, bad header length",
            "Adjusted frame length exceeds %s discarded",
            "TooLongFrameException",
            code=1,
        ),
        retried="it depends on the client: the connection is closed, so that its requests fail like lost ones",
        fault=Fault.CLIENT,
        cure="The log names the address: see what runs there. Send smaller batches.",
        docs="docs/sending.md#codec",
        source="NettyDecoder, RemotingCommand",
    ),
    Row(
        cause=Cause.CONNECTION,
        key="connection_idle",
        what="a connection without traffic was closed",
        why="Neither side read or wrote for 120 s. A client with a heartbeat every 30 s never comes to that: this one "
        "hangs, or only sends now and then.",
        texts=texts(
            Side.BROKER_LOG,
            "NETTY SERVER PIPELINE: IDLE exception [%s]",
            "NETTY CLIENT PIPELINE: IDLE exception [%s]",
            request=Request.OTHER,
        ),
        retried="the client: it connects again with its next request",
        fault=Fault.PEER,
        cure="Nothing, if the client is well.",
        docs="docs/sending.md#connection",
        source="NettyRemotingServer, NettyRemotingClient",
    ),
    Row(
        cause=Cause.CONNECTION,
        key="connection_of_the_system",
        what="the operating system ended or refused a connection",
        why="Refused: nothing listens on that port. Reset, broken pipe: the other program ended, or a device between "
        "the two dropped the connection.",
        texts=texts(Side.SYSTEM, "Connection refused", "Connection reset by peer", "Broken pipe"),
        stored=Stored.UNKNOWN,
        retried="producers try another broker; consumers pull again",
        fault=Fault.PEER,
        cure="Check that the program at the other end runs, and its address: pocketmq brokers.",
        docs="docs/sending.md#connection",
    ),
    Row(
        cause=Cause.MEMORY_LIMIT,
        key="out_of_memory",
        what="a program has no memory, or no file descriptors, left",
        why="Too small a heap or direct memory for the number of clients, a limit of the container, or ulimit -n.",
        texts=texts(
            Side.SYSTEM,
            "java.lang.OutOfMemoryError",
            "Cannot allocate memory",
            "Too many open files",
            request=Request.OTHER,
        ),
        retried=PULL_AGAIN.replace("push consumers", "nothing by itself; push consumers"),
        fault=Fault.OPERATOR,
        cure="See which limit it is: -Xmx and -XX:MaxDirectMemorySize in runbroker.sh, the container's memory, ulimit "
        "-n; vm.max_map_count for mapped files.",
        price="Memory.",
        docs="docs/sending.md#memory_limit",
    ),
)

UPKEEP_ROWS: Final = (*_LOCKS, *_COPIES)
"""Locks first, then what concerns more than one machine."""
