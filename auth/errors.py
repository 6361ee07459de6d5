"""Errors of access control.

Lives here: what cannot be a user or policy, what cannot be read or written, and the two refusals of a request.
"""

from pocketmq.common.errors import BytesIllegal, Cause, PocketMQError


class AuthIllegal(BytesIllegal):
    """A user or a policy that cannot be: nothing was changed."""

    code = 15  # RocketMQ's INVALID_PARAMETER
    default_cause = Cause.BAD_REQUEST


class UserNotFound(AuthIllegal):
    """There is no such user (RocketMQ's USER_NOT_EXIST)."""

    code = 3001


class PolicyNotFound(AuthIllegal):
    """The user has no such policy (RocketMQ's POLICY_NOT_EXIST)."""

    code = 3002


class NotSuper(AuthIllegal):
    """Only a super user may make or change a super user."""

    code = 1  # RocketMQ answers SYSTEM_ERROR


class PlainAccountRefused(AuthIllegal):
    """An account of RocketMQ 4.9 that cannot be a user here (4.9.8's UPDATE_AND_CREATE_ACL_CONFIG_FAILED)."""

    code = 209


class PlainAccountNotDeleted(AuthIllegal):
    """An account of RocketMQ 4.9 that is still there, or never was (4.9.8's DELETE_ACL_CONFIG_FAILED)."""

    code = 210


class WhiteAddressesRefused(AuthIllegal):
    """Addresses from which nobody would have to authenticate (4.9.8's UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED)."""

    code = 211


class AuthFileUnreadable(PocketMQError):
    """The file of users and policies is there and cannot be used: the server does not start."""

    default_cause = Cause.CORRUPT


class AuthNotWritten(PocketMQError):
    """A change of users or policies could not be made durable, so it does not hold."""

    retriable = True
    default_cause = Cause.DISK_ERROR


class AccessDenied(PocketMQError):
    """The sender of a request is unknown, or may not do this; nothing was carried out. ``str`` is the text for the
    wire, in RocketMQ's words."""

    code = 16  # NO_PERMISSION
    default_cause = Cause.NO_PERMISSION


class CodeUnknown(PocketMQError):
    """A request code without a rule: refused, whoever asks."""

    code = 3  # REQUEST_CODE_NOT_SUPPORTED
    default_cause = Cause.BAD_REQUEST
