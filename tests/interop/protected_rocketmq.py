"""RocketMQ's servers with access control of both generations, and with TLS.

``admin`` may do everything, ``app`` may use one topic and a few groups, and nobody else exists.

Lives here: their files, the two users, ``protected_rocketmq``.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pocketmq.client import TLS, Credentials
from pocketmq.remoting.security.signature import sign
from tests.interop.rocketmq_servers import RocketMQServers, ask_json, running
from tests.interop.toolchain import require_java
from tests.remoting.protected_servers import CERTIFICATES

ADMIN = Credentials("rocketmq-admin", "admin-secret-1")
APP = Credentials("rocketmq-app", "app-secret-1")
OURS = TLS(ca=str(CERTIFICATES / "ca.pem"))
ALLOWED, FORBIDDEN = "app-topic", "admin-topic"
GROUPS = ("app-group", "app-ordered", "app-pull", "app-producer", "pocketmq-cli")
AUTH_CREATE_USER, AUTH_CREATE_ACL = 3001, 3006
PLAIN_ACL = """accounts:
- accessKey: {app.access_key}
  secretKey: {app.secret_key}
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - {topic}=PUB|SUB
  groupPerms:
{groups}
- accessKey: {admin.access_key}
  secretKey: {admin.secret_key}
  admin: true
"""
TLS_PROPERTIES = """tls.test.mode.enable=false
tls.server.need.client.auth=none
tls.server.keyPath={server}
tls.server.certPath={server}
tls.server.authClient=false
tls.client.authServer=true
tls.client.trustCertPath={ca}
"""


def acl_properties(version: str, directory: Path) -> dict[str, object]:
    """Return the settings of a broker with access control; write the file of 4.9."""
    if version == "4.9":
        conf = directory / "home" / "conf"
        conf.mkdir(parents=True)
        groups = "\n".join(f"  - {group}=PUB|SUB" for group in GROUPS)
        (conf / "plain_acl.yml").write_text(PLAIN_ACL.format(app=APP, admin=ADMIN, topic=ALLOWED, groups=groups))
        return {"aclEnable": "true"}
    auth = "org.apache.rocketmq.auth"
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationMetadataProvider": f"{auth}.authentication.provider.LocalAuthenticationMetadataProvider",
        "authorizationMetadataProvider": f"{auth}.authorization.provider.LocalAuthorizationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": ADMIN.access_key, "password": ADMIN.secret_key}),
        "innerClientAuthenticationCredentials": json.dumps(
            {"accessKey": ADMIN.access_key, "secretKey": ADMIN.secret_key}
        ),
    }


@contextmanager
def protected_rocketmq(version: str, directory: Path, mode: str = "", *, acl: bool = True) -> Iterator[RocketMQServers]:
    """Run a name server and a broker; ``mode``: of TLS, "permissive" or "enforcing", or empty."""
    require_java()
    options: tuple[str, ...] = ()
    if mode:
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "tls.properties"
        file.write_text(TLS_PROPERTIES.format(server=CERTIFICATES / "server.pem", ca=CERTIFICATES / "ca.pem"))
        options = (f"-Dtls.server.mode={mode}", f"-Dtls.config.file={file}")
    properties = acl_properties(version, directory) if acl else {}
    servers = RocketMQServers(
        version,
        directory,
        {
            "transactionTimeOut": 3000,
            "transactionCheckInterval": 3000,
            "transactionOpBatchInterval": 200,
            "brokerFastFailureEnable": "false",
            "osPageCacheBusyTimeOutMills": 60_000,
            **properties,
        },
        refusals=(1, 16) if acl else (),
        tls=OURS.context() if mode == "enforcing" else None,
        java_options=options,
    )
    with running(servers):
        if acl:
            allow_app(servers)
        yield servers


def allow_app(servers: RocketMQServers) -> None:
    """Give ``app`` its permissions; 4.9 has them in its file."""
    if servers.version == "4.9":
        return
    user = {"username": APP.access_key, "password": APP.secret_key, "userType": "Normal", "userStatus": "enable"}
    _admin(servers, AUTH_CREATE_USER, {"username": APP.access_key}, user)
    subject = f"User:{APP.access_key}"
    resources = (f"Topic:{ALLOWED}", *(f"Group:{group}" for group in GROUPS))
    entries = [{"resource": each, "actions": ["All"], "decision": "Allow"} for each in resources]
    acl = {"subject": subject, "policies": [{"policyType": "Custom", "entries": entries}]}
    _admin(servers, AUTH_CREATE_ACL, {"subject": subject}, acl)


def _admin(servers: RocketMQServers, code: int, fields: dict[str, str], body: object) -> None:
    data = json.dumps(body).encode()
    answer = ask_json(servers.broker, code, {**fields, **sign(ADMIN, fields, data)}, tls=servers.tls, body=data)
    assert answer[0] == 0, answer
