"""Basic authentication at an HTTP port, with the users and policies of the server."""

import base64
from typing import Any

import pytest

from pocketmq.auth.auth_table import AuthContents
from pocketmq.auth.config import AuthConfig
from pocketmq.auth.guard import FAILURES_MAX, HOSTS_MAX
from pocketmq.auth.policies import Policy, entry_of
from pocketmq.auth.server_auth import ServerAuth
from pocketmq.auth.users import User, UserStatus, UserType
from pocketmq.common.clock import ManualClock
from pocketmq.common.logs import CapturedLog
from pocketmq.remoting.http_server import Answer, HttpRequest
from pocketmq.remoting.refused_requests import RefusedRequests

READER = User(username="prometheus", password="scrape-secret")
STRANGE = User(username="other", password="other-secret")
GONE = User(username="gone", password="gone-secret", user_status=UserStatus.DISABLE)
ROOT = User(username="root", password="root-secret", user_type=UserType.SUPER)
MAY_READ = (Policy((entry_of("Cluster:C", ["Get"], "Allow"),)),)


class Rig:
    """The HTTP access of a server with four users, of whom one may read its pages and one everything."""

    def __init__(self, **config: Any) -> None:
        self.clock = ManualClock()
        log = CapturedLog()
        settings = {"authentication_enabled": True, "authorization_enabled": True, **config}
        refused = RefusedRequests(self.clock, log)
        self.auth = ServerAuth(AuthConfig(**settings), "", cluster="C", clock=self.clock, log=log, refused=refused)
        contents = AuthContents()
        for user in (READER, STRANGE, GONE, ROOT):
            contents = contents.with_user(user)
        self.auth.table.replace(contents.with_policies("prometheus", MAY_READ))

    def ask(self, credentials: str | None, host: str = "10.0.0.7") -> Answer | None:
        headers = {} if credentials is None else {"authorization": credentials}
        return self.auth.http.refusal(HttpRequest("GET", "/metrics", {}, headers, host))

    def status(self, user: str, password: str, host: str = "10.0.0.7") -> int:
        answer = self.ask("Basic " + base64.b64encode(f"{user}:{password}".encode()).decode(), host)
        return 200 if answer is None else answer.status


def test_without_authentication_everybody_reads() -> None:
    assert Rig(authentication_enabled=False, authorization_enabled=False).ask(None) is None


def test_a_user_reads_whom_policies_allow_it() -> None:
    """A super user always, another one with Get on the cluster; a stranger never."""
    rig = Rig()
    assert rig.status("prometheus", "scrape-secret") == 200
    assert rig.status("root", "root-secret") == 200
    assert rig.status("other", "other-secret") == 403
    assert rig.status("prometheus", "wrong") == 401
    assert rig.status("nobody", "scrape-secret") == 401
    assert rig.status("gone", "gone-secret") == 401
    assert rig.auth.denials.counts == {"user": 3, "policy": 1, "flood": 0}
    assert rig.auth.denials.copy()[0].resource == "Cluster:C"
    assert "secret" not in repr(rig.auth.denials.copy())


def test_without_policies_each_known_user_reads() -> None:
    rig = Rig(authorization_enabled=False)
    assert rig.status("other", "other-secret") == 200
    assert rig.status("gone", "gone-secret") == 401


def test_the_user_between_servers_reads() -> None:
    rig = Rig(inner_access_key="inner", inner_secret_key="inner-secret")
    assert rig.status("inner", "inner-secret") == 200
    assert rig.status("inner", "other-secret") == 401


@pytest.mark.parametrize(
    "header", [None, "", "Basic", "Basic !!!", "Basic " + "=" * 9, "Bearer abc", "Basic bm9jb2xvbg==", "Basic //79"]
)
def test_whatever_is_no_credentials_is_asked_for_some(header: str | None) -> None:
    """The answer says how, so that a browser asks its user."""
    answer = Rig().ask(header)
    assert answer is not None
    assert answer.status == 401
    assert dict(answer.headers)["WWW-Authenticate"].startswith("Basic ")


def test_guessing_is_slow_for_its_address_alone() -> None:
    """Beyond a number of wrong passwords a second even the right one is not looked at; others are served."""
    rig = Rig()
    for _ in range(FAILURES_MAX):
        assert rig.status("prometheus", "wrong") == 401
    assert rig.status("prometheus", "scrape-secret") == 429
    assert rig.status("prometheus", "scrape-secret", "10.0.0.8") == 200
    rig.clock.advance_ms(1000)
    assert rig.status("prometheus", "scrape-secret") == 200


def test_the_table_of_failures_is_bounded() -> None:
    rig = Rig()
    for number in range(HOSTS_MAX + 10):
        rig.status("prometheus", "wrong", f"host-{number}")
    assert len(rig.auth.http.failures) == HOSTS_MAX
