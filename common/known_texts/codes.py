"""What a response code says by itself: the numbers of RocketMQ 4.9 and 5.3, each with its meanings.

Lives here: ``CODES``, ``Code``; ``code_of``, which takes a number or a name. A number that RocketMQ used twice has a
row for each meaning. Source: ``ResponseCode.java``, ``RemotingSysResponseCode.java`` and ``ClientErrorCode.java`` of
4.9.8 and 5.3.3.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pocketmq.common.errors import Stored


@dataclass(frozen=True, slots=True)
class Code:
    """One meaning of a number. ``stored`` None: the code answers no send. ``versions``: empty for all."""

    number: int
    name: str
    what: str
    stored: Stored | None = None
    versions: str = ""
    of_client: bool = False
    """A client made it for itself; no server sends it."""


def _code(number: int, name: str, what: str, stored: Stored | None = None, versions: str = "") -> Code:
    return Code(number, name, what, stored, versions, number > 10_000)


_NO, _YES, _PERHAPS = Stored.NO, Stored.YES, Stored.UNKNOWN

CODES: Final = (
    _code(0, "SUCCESS", "The request was carried out; a message is stored (SEND_OK).", _YES),
    _code(1, "SYSTEM_ERROR", "Any failure without a code of its own, an exception in the server too.", _PERHAPS),
    _code(2, "SYSTEM_BUSY", "Flow control: the server protects itself, and refused the request unread.", _NO),
    _code(3, "REQUEST_CODE_NOT_SUPPORTED", "The server does not know this kind of request.", _NO),
    _code(4, "TRANSACTION_FAILED", "A transaction could not be begun or ended.", _PERHAPS),
    _code(10, "FLUSH_DISK_TIMEOUT", "Stored; with SYNC_FLUSH it was not on the disk in time.", _YES),
    _code(
        11,
        "SLAVE_NOT_AVAILABLE",
        "Stored on the master; no slave was there to copy it. Of a decision on a transaction: asked at a slave.",
        _YES,
    ),
    _code(12, "FLUSH_SLAVE_TIMEOUT", "Stored on the master; no slave confirmed it in time.", _YES),
    _code(13, "MESSAGE_ILLEGAL", "The message is too large, empty or malformed; it will never be accepted.", _NO),
    _code(14, "SERVICE_NOT_AVAILABLE", "The store takes no messages: disk full or failing, slave, start, stop.", _NO),
    _code(15, "VERSION_NOT_SUPPORTED", "The client is too old or too new for the request."),
    _code(
        16,
        "NO_PERMISSION",
        "Topic, group, broker or access control forbid it; of an offset commit in PocketMQ: "
        "another consumer holds the queue's lock.",
        _NO,
    ),
    _code(17, "TOPIC_NOT_EXIST", "The server does not know the topic and does not create it.", _NO),
    _code(18, "TOPIC_EXIST_ALREADY", "The topic exists already."),
    _code(19, "PULL_NOT_FOUND", "Nothing new in the queue; the normal answer to a consumer that has everything."),
    _code(20, "PULL_RETRY_IMMEDIATELY", "No message matched; the consumer goes on at the offset in the answer."),
    _code(21, "PULL_OFFSET_MOVED", "The offset is outside of the queue; the answer has the nearest one."),
    _code(22, "QUERY_NOT_FOUND", "The message, offset or setting that was asked for is not there."),
    _code(23, "SUBSCRIPTION_PARSE_FAILED", "The tag or SQL expression cannot be read."),
    _code(24, "SUBSCRIPTION_NOT_EXIST", "The broker does not know that the group consumes this topic."),
    _code(25, "SUBSCRIPTION_NOT_LATEST", "The broker knows an older subscription of the group."),
    _code(26, "SUBSCRIPTION_GROUP_NOT_EXIST", "The consumer group does not exist at the broker."),
    _code(27, "FILTER_DATA_NOT_EXIST", "The broker has no compiled SQL expression of the group."),
    _code(28, "FILTER_DATA_NOT_LATEST", "The broker has an older SQL expression of the group."),
    _code(29, "INVALID_PARAMETER", "A field of the request is not allowed; 4.9 answers 1 instead.", _NO, "5.3"),
    _code(200, "TRANSACTION_SHOULD_COMMIT", "The broker should commit the half message."),
    _code(201, "TRANSACTION_SHOULD_ROLLBACK", "The broker should roll the half message back."),
    _code(202, "TRANSACTION_STATE_UNKNOW", "The producer does not know the decision yet; the broker asks again."),
    _code(203, "TRANSACTION_STATE_GROUP_WRONG", "Another group's transaction."),
    _code(204, "NO_BUYER_ID", "A message of a unit topic has no buyer id.", _NO),
    _code(205, "NOT_IN_CURRENT_UNIT", "The message belongs to another unit.", _NO),
    _code(206, "CONSUMER_NOT_ONLINE", "No such consumer is connected."),
    _code(207, "CONSUME_MSG_TIMEOUT", "The consumer did not handle the message in time."),
    _code(208, "NO_MESSAGE", "No message was found by this id or key."),
    _code(209, "POLLING_FULL", "Too many pops wait already.", None, "5.3"),
    _code(209, "UPDATE_AND_CREATE_ACL_CONFIG_FAILED", "The access rules could not be changed.", None, "4.9"),
    _code(210, "POLLING_TIMEOUT", "A pop that waited found nothing.", None, "5.3"),
    _code(210, "DELETE_ACL_CONFIG_FAILED", "The access rules could not be deleted.", None, "4.9"),
    _code(211, "BROKER_NOT_EXIST", "No such broker.", None, "5.3"),
    _code(
        211,
        "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED",
        "The list of trusted addresses could not be changed.",
        None,
        "4.9",
    ),
    _code(212, "BROKER_DISPATCH_NOT_COMPLETE", "The broker has not indexed its log up to here.", None, "5.3"),
    _code(213, "BROADCAST_CONSUMPTION", "The group consumes by broadcast; it has no common offsets.", None, "5.3"),
    _code(215, "FLOW_CONTROL", "Flow control of pulls; the consumer pulls again after 20 ms."),
    _code(501, "NOT_LEADER_FOR_QUEUE", "Another broker leads this queue of a static topic.", _NO, "5.3"),
    _code(604, "ILLEGAL_OPERATION", "The operation is not allowed here.", _NO, "5.3"),
    _code(1500, "GO_AWAY", "The server closes; connect again, to it or another one.", _NO, "5.3.1"),
    _code(10001, "CONNECT_BROKER_EXCEPTION", "No connection to the broker could be made, or it broke.", _PERHAPS),
    _code(10002, "ACCESS_BROKER_TIMEOUT", "The broker did not answer in time.", _PERHAPS),
    _code(10003, "BROKER_NOT_EXIST_EXCEPTION", "The queue names a broker that the client does not know.", _NO),
    _code(10004, "NO_NAME_SERVER_EXCEPTION", "The client has no name server to ask.", _NO),
    _code(10005, "NOT_FOUND_TOPIC_EXCEPTION", "No broker has the topic.", _NO),
    _code(10006, "REQUEST_TIMEOUT_EXCEPTION", "The request was sent, and no reply came in time.", _YES),
    _code(10007, "CREATE_REPLY_MESSAGE_EXCEPTION", "No reply can be made of the message.", _NO),
)
"""By number; a number with two meanings has the newer version first."""


def code_of(text: str) -> Iterator[Code]:
    """Yield the meanings of a number or of a name (in any case), in the order of ``CODES``.

    >>> [code.name for code in code_of("209")]
    ['POLLING_FULL', 'UPDATE_AND_CREATE_ACL_CONFIG_FAILED']
    >>> [code.number for code in code_of("system_busy")]
    [2]
    """
    asked = text.strip().upper()
    number = int(asked) if asked.isascii() and asked.isdecimal() and len(asked) < 10 else -1
    yield from (code for code in CODES if code.number == number or code.name == asked)


def nearest_codes(text: str, count: int = 3) -> list[Code]:
    """Return the codes whose numbers are nearest to an unknown one; none for a text that is no number.

    >>> [code.number for code in nearest_codes("99999")]
    [10007, 10006, 10005]
    """
    asked = text.strip()
    if not (asked.isascii() and asked.isdecimal()):
        return []
    number = int(asked[:10])
    first = {code.number: code for code in reversed(CODES)}
    return sorted(first.values(), key=lambda code: abs(code.number - number))[:count]
