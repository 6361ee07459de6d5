"""Administration of access control: users and policies of brokers and name servers.

    async with Admin(namesrv, credentials=root) as admin:
        done = await AccessAdmin(admin).create_user("app", "its secret")        # server -> what it answered

A change goes to each master and to each PocketMQ name server. Requests are RocketMQ 5's: they serve RocketMQ's brokers
as well.

Lives here: ``AccessAdmin``.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from pocketmq.client.admin.admin import Admin
from pocketmq.client.connection.instance import check_answer
from pocketmq.client.errors import BrokerAnswerError
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.acl import (
    AclInfo,
    AclRequestHeader,
    AuthLogBody,
    AuthLogRequestHeader,
    AuthTestBody,
    AuthTestRequestHeader,
    DeleteAclRequestHeader,
    DenialInfo,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    UserRequestHeader,
    WhoAmIBody,
)
from pocketmq.remoting.protocol.body import decode_body, encode_body
from pocketmq.remoting.protocol.spec import Header

DONE: Final = "done"


class AccessAdmin:
    """Users and policies of a cluster. Methods that change return what each server answered: ``done``, or its error."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def servers(self) -> list[str]:
        """Return the addresses of all masters, then of the name servers that are PocketMQ's and have users of their
        own."""
        name_servers = self._admin.instance.name_servers
        timeout_ms = self._admin.instance.options.api_timeout_ms
        found: dict[str, str] = {}
        for address in dict.fromkeys((await self._admin.masters()).values()):
            found[address] = await self._table_at(address)
        for address in name_servers.addresses:
            if await name_servers.is_pocketmq(address, timeout_ms=timeout_ms):
                table = await self._table_at(address)
                if not table or table not in found.values():
                    found[address] = table
        return list(found)

    async def _table_at(self, address: str) -> str:
        try:
            return decode_body(
                await self._ask(address, RequestCode.WHOAMI, None, b"", "not answered"), WhoAmIBody
            ).table
        except BrokerAnswerError:
            return ""

    # ---- users -----------------------------------------------------------------------------------------------------

    async def create_user(
        self,
        username: str,
        password: str,
        *,
        user_type: str = "Normal",
        user_status: str = "enable",
        limits: Mapping[str, int] | None = None,
    ) -> dict[str, str]:
        """Make a user on all servers. ``limits``: field of ``UserLimits`` → what the user may have in place of what
        the settings say; 0: no limit."""
        body = encode_body(UserInfo(username, password, user_type, user_status, dict(limits or {}) or None))
        return await self._change(RequestCode.AUTH_CREATE_USER, UserRequestHeader(username), body, "user not created")

    async def update_user(
        self,
        username: str,
        *,
        password: str = "",
        user_type: str = "",
        user_status: str = "",
        limits: Mapping[str, int] | None = None,
    ) -> dict[str, str]:
        """Change a user on all servers; what is empty stays. A limit below 0 is as the settings say again."""
        body = encode_body(UserInfo(username, password, user_type, user_status, dict(limits or {}) or None))
        return await self._change(RequestCode.AUTH_UPDATE_USER, UserRequestHeader(username), body, "user not changed")

    async def delete_user(self, username: str) -> dict[str, str]:
        """Delete a user and the user's policies on all servers."""
        return await self._change(RequestCode.AUTH_DELETE_USER, UserRequestHeader(username), b"", "user not deleted")

    async def users(self, part: str = "") -> dict[str, list[UserInfo]]:
        """Return server → its users whose names contain ``part``. Passwords are not among the answers."""
        header = ListUsersRequestHeader(part)
        found = {}
        for address in await self.servers():
            body = await self._ask(address, RequestCode.AUTH_LIST_USER, header, b"", "users not listed")
            found[address] = msgspec.json.decode(body, type=list[UserInfo])
        return found

    # ---- policies --------------------------------------------------------------------------------------------------

    async def create_acl(
        self,
        username: str,
        resource: str,
        actions: Sequence[str],
        *,
        decision: str = "Allow",
        sources: Sequence[str] = (),
        policy_type: str = "Custom",
        replace: bool = False,
    ) -> dict[str, str]:
        """Give a user an entry for ``resource`` on all servers; ``replace``: in the place of the one that is there."""
        entry = PolicyEntryInfo(resource, list(actions), list(sources), decision)
        body = encode_body(AclInfo(f"User:{username}", [PolicyInfo(policy_type, [entry])]))
        code = RequestCode.AUTH_UPDATE_ACL if replace else RequestCode.AUTH_CREATE_ACL
        return await self._change(code, AclRequestHeader(f"User:{username}"), body, "policy not changed")

    async def delete_acl(self, username: str, *, resource: str = "", policy_type: str = "") -> dict[str, str]:
        """Delete a user's entries for ``resource`` on all servers; without one, all of the user's policies."""
        header = DeleteAclRequestHeader(f"User:{username}", policy_type, resource)
        return await self._change(RequestCode.AUTH_DELETE_ACL, header, b"", "policy not deleted")

    async def acls(self, *, username: str = "", resource: str = "") -> dict[str, list[AclInfo]]:
        """Return server → its policies; ``username`` and ``resource`` are parts of the texts."""
        header = ListAclsRequestHeader(username, resource)
        found = {}
        for address in await self.servers():
            body = await self._ask(address, RequestCode.AUTH_LIST_ACL, header, b"", "policies not listed")
            found[address] = msgspec.json.decode(body, type=list[AclInfo])
        return found

    # ---- a look at access control ----------------------------------------------------------------------------------

    async def test(self, username: str, resource: str, action: str, *, source: str = "") -> dict[str, AuthTestBody]:
        """Return server → what it would say to ``action`` of a user on ``resource``, from the address ``source``."""
        header = AuthTestRequestHeader(username, resource, action, source)
        return {
            address: decode_body(
                await self._ask(address, RequestCode.AUTH_TEST, header, b"", "not tested"), AuthTestBody
            )
            for address in await self.servers()
        }

    async def denials(self, count: int = 100) -> dict[str, list[DenialInfo]]:
        """Return server → its last refusals, the newest first."""
        header = AuthLogRequestHeader(count)
        return {
            address: decode_body(
                await self._ask(address, RequestCode.AUTH_LOG, header, b"", "denials not listed"), AuthLogBody
            ).denials
            for address in await self.servers()
        }

    async def who_am_i(self) -> dict[str, WhoAmIBody]:
        """Return server → the user that it takes this client for; only the name servers' answers where this user may
        not see the brokers."""
        try:
            servers = await self.servers()
        except BrokerAnswerError as error:
            if error.answer_code != ResponseCode.NO_PERMISSION:
                raise
            servers = list(self._admin.instance.name_servers.addresses)
        return {
            address: decode_body(await self._ask(address, RequestCode.WHOAMI, None, b"", "not answered"), WhoAmIBody)
            for address in servers
        }

    # ---- inside ----------------------------------------------------------------------------------------------------

    async def _change(self, code: int, header: Header, body: bytes, what: str) -> dict[str, str]:
        servers = await self.servers()
        answers = await asyncio.gather(*(self._try(each, code, header, body, what) for each in servers))
        return dict(zip(servers, answers, strict=True))

    async def _try(self, address: str, code: int, header: Header, body: bytes, what: str) -> str:
        try:
            await self._ask(address, code, header, body, what)
        except BrokerAnswerError as error:
            return error.remark or str(error)
        except PocketMQError as error:
            return str(error)
        return DONE

    async def _ask(self, address: str, code: int, header: Header | None, body: bytes, what: str) -> Any:
        instance = self._admin.instance
        timeout_ms = instance.options.api_timeout_ms
        if address in instance.name_servers.addresses:
            response = await instance.name_servers.request_at(address, code, header, body, timeout_ms=timeout_ms)
        else:
            connection = await instance.connection_to(address, address, timeout_ms=timeout_ms)
            response = await connection.channel.request(code, header, body, timeout_ms=timeout_ms)
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise BrokerAnswerError(
                what,
                answer_code=response.code,
                remark=f"{address} has no users and policies of this kind (RocketMQ before 5.3)",
                address=address,
            )
        return check_answer(response, what, address).body
