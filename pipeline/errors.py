"""What the connector refuses.

Lives here: its exceptions.
"""

from pocketmq.common.errors import Cause, PocketMQError


class OptionIllegal(PocketMQError):
    """An option is unknown, missing, or has a value that means nothing."""

    default_cause = Cause.CONFIG


class SchemaIllegal(PocketMQError):
    """The schema that the user gave names a column that messages do not have, or gives it another type."""

    default_cause = Cause.CONFIG


class DataLost(PocketMQError):
    """Messages that a query was to read are gone: retention was faster, or the topic was made anew."""

    default_cause = Cause.BAD_REQUEST


class BrokerAway(PocketMQError):
    """A broker did not answer for longer than ``brokerWaitMs``."""

    default_cause = Cause.TIMEOUT
