"""The administration of one server's users and policies, for tests."""

from pathlib import Path
from typing import Any

from pocketmq.auth.auth_admin import AuthAdmin
from pocketmq.auth.config import AuthConfig
from pocketmq.auth.server_auth import ServerAuth
from pocketmq.auth.session import Session
from pocketmq.auth.users import User, UserType
from pocketmq.common.clock import ManualClock
from pocketmq.common.logs import CapturedLog
from pocketmq.remoting.codec import Request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import JSON
from pocketmq.remoting.protocol import acl
from pocketmq.remoting.protocol.body import decode_body, encode_body
from pocketmq.remoting.refused_requests import RefusedRequests

R = RequestCode
ROOT = User(username="root", password="root-secret", user_type=UserType.SUPER)
MANAGER = User(username="manager", password="manager-secret")


class Rig:
    """The administration of one server, asked by a super user."""

    def __init__(self, path: Path, **settings: Any) -> None:
        clock = ManualClock()
        self.log = CapturedLog()
        config = AuthConfig(
            **{
                "authentication_enabled": True,
                "authorization_enabled": True,
                "init_username": "root",
                "init_password": "root-secret",
                **settings,
            }
        )
        self.path = path / "auth.json"
        self.auth = ServerAuth(
            config, str(self.path), cluster="C", clock=clock, log=self.log, refused=RefusedRequests(clock, self.log)
        )
        self.auth.load()
        self.admin = AuthAdmin(self.auth, self.log)

    def ask(self, code: RequestCode, header: Any = None, body: Any = None, *, user: User = ROOT) -> bytes:
        session = Session(user, None, self.auth.table.contents, self.auth.table.generation, checks=True)
        data = b"" if body is None else encode_body(body)
        request = Request(code, 1, False, 0, 0, JSON, header, data, {}, session=session)
        return self.admin.handlers[code](request, "10.0.0.1:5000")

    def make(self, name: str = "alice", password: str = "alice-secret", **fields: Any) -> None:
        self.ask(R.AUTH_CREATE_USER, acl.UserRequestHeader(name), acl.UserInfo(name, password, **fields))

    def allow(self, resource: str = "Topic:orders", code: RequestCode = R.AUTH_CREATE_ACL, **entry: Any) -> None:
        info = acl.PolicyEntryInfo(**{"resource": resource, "actions": ["Pub"], "decision": "Allow", **entry})
        body = acl.AclInfo("User:alice", [acl.PolicyInfo("Custom", [info])])
        self.ask(code, acl.AclRequestHeader("User:alice"), body)

    def resources(self) -> list[str]:
        body = decode_body(self.ask(R.AUTH_GET_ACL, acl.AclRequestHeader("User:alice")), acl.AclInfo)
        return [entry.resource or "" for policy in body.policies or () for entry in policy.entries or ()]
