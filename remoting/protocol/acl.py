"""Users and policies: RocketMQ 5's requests, those of RocketMQ 4.9, and PocketMQ's to look into access control.

Bodies: RocketMQ 5.3.3 ``UserInfo``, ``AclInfo``, ``PolicyInfo``, ``PolicyEntryInfo``. Headers of 50 to 53: RocketMQ
4.9.8 ``CreateAccessConfigRequestHeader``, ``DeleteAccessConfigRequestHeader``, ``GetBrokerAclConfigResponseHeader``,
``UpdateGlobalWhiteAddrsConfigRequestHeader``.

Access: RocketMQ 5.3.3's annotations for 3001 to 3010. In 4.9 every account may send 50 to 53, and so give itself any
right; here they need what 3001 to 3010 need. Our decision: AUTH_LOG and AUTH_TEST show who may do what, and
need what reading an ACL needs; WHOAMI is for every user; AUTH_CONTENTS holds passwords, and its handler also wants a
super user.
"""

from typing import Final

import msgspec

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import ANY_USER, GET_CLUSTER, UPDATE_CLUSTER
from pocketmq.remoting.protocol.body import Body
from pocketmq.remoting.protocol.spec import Header, Long, Pool, Spec


class UserRequestHeader(Header, frozen=True):
    """AUTH_CREATE_USER, AUTH_UPDATE_USER, AUTH_DELETE_USER, AUTH_GET_USER."""

    username: str = ""


class ListUsersRequestHeader(Header, frozen=True):
    """AUTH_LIST_USER; ``filter``: a part of the name."""

    filter: str = ""


class UserInfo(Body):
    """A user. An empty field of an update stays as it is; answers carry no password."""

    username: str | None = ""
    password: str | None = ""
    user_type: str | None = ""
    user_status: str | None = ""
    limits: dict[str, int] | None = None
    """Ours: limit → what the user may have in place of the settings'; 0: no limit, below 0: as the settings say."""


class UserList(msgspec.Struct):
    """Not on the wire: AUTH_LIST_USER's body is a list of ``UserInfo``."""

    users: list[UserInfo] = []


class AclRequestHeader(Header, frozen=True):
    """AUTH_CREATE_ACL, AUTH_UPDATE_ACL, AUTH_GET_ACL; ``subject`` is ``User:name``."""

    subject: str = ""


class DeleteAclRequestHeader(Header, frozen=True):
    """AUTH_DELETE_ACL: all policies of a subject, or its entries for one resource."""

    subject: str = ""
    policy_type: str = ""
    resource: str = ""


class ListAclsRequestHeader(Header, frozen=True):
    """AUTH_LIST_ACL; each filter is a part of the text."""

    subject_filter: str = ""
    resource_filter: str = ""


class PolicyEntryInfo(Body):
    """One rule."""

    resource: str | None = ""
    actions: list[str] | None = []
    source_ips: list[str] | None = []
    decision: str | None = ""


class PolicyInfo(Body):
    """Rules of one type, ``Custom`` or ``Default``."""

    policy_type: str | None = "Custom"
    entries: list[PolicyEntryInfo] | None = []


class AclInfo(Body):
    """The policies of one subject."""

    subject: str | None = ""
    policies: list[PolicyInfo] | None = []


class PlainAccountRequestHeader(Header, frozen=True):
    """UPDATE_AND_CREATE_ACL_CONFIG: an account of 4.9. A field that is missing stays as it is."""

    access_key: str
    secret_key: str = ""
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str = ""
    default_group_perm: str = ""
    topic_perms: str | None = None
    """``topic=PUB|SUB``, with commas between them; they replace all of the account."""
    group_perms: str | None = None

    def __repr__(self) -> str:
        return f"PlainAccountRequestHeader({self.access_key!r})"


class DeletePlainAccountRequestHeader(Header, frozen=True):
    """DELETE_ACL_CONFIG."""

    access_key: str


class PlainVersionResponseHeader(Header, frozen=True):
    """GET_BROKER_CLUSTER_ACL_INFO: when users and policies last changed."""

    version: str = ""
    """A ``DataVersion`` as JSON."""
    all_acl_file_version: str = ""
    """File → its ``DataVersion``, as JSON."""
    broker_name: str = ""
    broker_addr: str = ""
    cluster_name: str = ""


class WhiteAddressesRequestHeader(Header, frozen=True):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: addresses from which 4.9 lets anybody do everything, with commas."""

    global_white_addrs: str = ""


class WhoAmIBody(Body):
    """WHOAMI: the user that the server takes the sender for."""

    username: str = ""
    """Empty: the server knows no users."""
    user_type: str = ""
    how: str = ""
    """``proof``, ``signature``, ``certificate``; empty where nothing is checked."""
    address: str = ""
    authorization: bool = False
    """Whether policies count on this server."""
    table: str = ""
    """Which users these are: servers of one process share them."""


class AuthTestRequestHeader(Header, frozen=True):
    """AUTH_TEST: what would happen to a request of ``username``, from ``source``, of a code or an action."""

    username: str
    resource: str
    action: str
    source: str = ""


class AuthTestBody(Body):
    """AUTH_TEST: the verdict, and the entry that decides."""

    allowed: bool = False
    why: str = ""
    entry: PolicyEntryInfo | None = None
    policy_type: str = ""
    needs: str = ""
    """All that the request code needs; empty where an action was tried."""


class AuthLogRequestHeader(Header, frozen=True):
    """AUTH_LOG; ``since_ms``: wall time in ms."""

    count: Long = 100
    since_ms: Long = 0


class DenialInfo(Body):
    """One refusal, or several equal ones in a row; wall times in ms."""

    time_ms: int = 0
    last_ms: int = 0
    count: int = 1
    user: str = ""
    address: str = ""
    code: int = 0
    resource: str = ""
    action: str = ""
    why: str = ""


class AuthLogBody(Body):
    """AUTH_LOG: the last denials, the newest first."""

    denials: list[DenialInfo] = []


_R = RequestCode
SPECS: Final = (
    Spec(_R.UPDATE_AND_CREATE_ACL_CONFIG, Pool.ADMIN, UPDATE_CLUSTER, PlainAccountRequestHeader),
    Spec(_R.DELETE_ACL_CONFIG, Pool.ADMIN, UPDATE_CLUSTER, DeletePlainAccountRequestHeader),
    Spec(_R.GET_BROKER_CLUSTER_ACL_INFO, Pool.ADMIN, GET_CLUSTER, response=PlainVersionResponseHeader),
    Spec(_R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, Pool.ADMIN, UPDATE_CLUSTER, WhiteAddressesRequestHeader),
    Spec(_R.AUTH_CREATE_USER, Pool.ADMIN, UPDATE_CLUSTER, UserRequestHeader, body=UserInfo, also_namesrv=True),
    Spec(_R.AUTH_UPDATE_USER, Pool.ADMIN, UPDATE_CLUSTER, UserRequestHeader, body=UserInfo, also_namesrv=True),
    Spec(_R.AUTH_DELETE_USER, Pool.ADMIN, UPDATE_CLUSTER, UserRequestHeader, also_namesrv=True),
    Spec(_R.AUTH_GET_USER, Pool.ADMIN, GET_CLUSTER, UserRequestHeader, answer=UserInfo, also_namesrv=True),
    Spec(_R.AUTH_LIST_USER, Pool.ADMIN, GET_CLUSTER, ListUsersRequestHeader, answer=UserList, also_namesrv=True),
    Spec(_R.AUTH_CREATE_ACL, Pool.ADMIN, UPDATE_CLUSTER, AclRequestHeader, body=AclInfo, also_namesrv=True),
    Spec(_R.AUTH_UPDATE_ACL, Pool.ADMIN, UPDATE_CLUSTER, AclRequestHeader, body=AclInfo, also_namesrv=True),
    Spec(_R.AUTH_DELETE_ACL, Pool.ADMIN, UPDATE_CLUSTER, DeleteAclRequestHeader, also_namesrv=True),
    Spec(_R.AUTH_GET_ACL, Pool.ADMIN, GET_CLUSTER, AclRequestHeader, answer=AclInfo, also_namesrv=True),
    Spec(_R.AUTH_LIST_ACL, Pool.ADMIN, GET_CLUSTER, ListAclsRequestHeader, answer=AclInfo, also_namesrv=True),
    Spec(_R.AUTH_LOG, Pool.ADMIN, GET_CLUSTER, AuthLogRequestHeader, answer=AuthLogBody, also_namesrv=True),
    Spec(_R.WHOAMI, Pool.ADMIN, ANY_USER, answer=WhoAmIBody, also_namesrv=True),
    Spec(_R.AUTH_TEST, Pool.ADMIN, GET_CLUSTER, AuthTestRequestHeader, answer=AuthTestBody, also_namesrv=True),
    Spec(_R.AUTH_CONTENTS, Pool.ADMIN, UPDATE_CLUSTER, also_namesrv=True),
)
