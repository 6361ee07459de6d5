"""Exceptions of the connector."""

from pocketmq.common.errors import Cause, PocketMQError


class OptionIllegal(PocketMQError):
    """An option is unknown, missing, or has an invalid value."""

    default_cause = Cause.CONFIG


class SchemaIllegal(PocketMQError):
    """The user's schema has a column that messages do not have, or gives it another type."""

    default_cause = Cause.CONFIG


class DataLost(PocketMQError):
    """Messages that a query was to read are gone: removed by retention, damaged, or of a topic created again."""

    default_cause = Cause.BAD_REQUEST


class BrokerAway(PocketMQError):
    """A broker did not answer for longer than ``brokerWaitMs``."""

    default_cause = Cause.TIMEOUT
