"""No secret of anybody is in anything that a broker, a name server, a command or the SDK lets out.

Secrets are planted in every place that takes one; then all output is searched: stdout, stderr, logs at their finest,
command lines of all processes, metrics, health, the doctor, settings as they are shown, tracebacks, the dump of a
process that is killed, and every file of the store but the one that keeps them.
"""

import asyncio
import base64
import json
import logging
import os
import signal
import traceback
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import Credentials, Producer, PushConsumer, ReceivedMessage
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import Message
from pocketmq.remoting.security.signature import sign
from tests.cli.conftest import RunCommand, StartDaemon
from tests.interop.rocketmq_servers import ask_json
from tests.servers import free_port

pytestmark = pytest.mark.slow

PLANTED = {
    name: f"Planted-{name}-{index}x7Qz"
    for index, name in enumerate(
        ("root", "inner", "app", "changed", "account", "wrong", "broken", "file", "option", "token", "quoted")
    )
}
SETTINGS = {
    "POCKETMQ_AUTH__AUTHENTICATION_ENABLED": "true",
    "POCKETMQ_AUTH__AUTHORIZATION_ENABLED": "true",
    "POCKETMQ_AUTH__INIT_USERNAME": "root",
    "POCKETMQ_AUTH__INIT_PASSWORD": PLANTED["root"],
    "POCKETMQ_AUTH__INNER_ACCESS_KEY": "inner",
    "POCKETMQ_AUTH__INNER_SECRET_KEY": PLANTED["inner"],
    "POCKETMQ_LOG__LEVEL": "debug",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONASYNCIODEBUG": "1",
}
ROOT = Credentials("root", PLANTED["root"])
UPDATE_ACCOUNT, CREATE_USER, UPDATE_USER = 50, 3001, 3002


class Search:
    """Gathers what was let out, with where it came from."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.searched: dict[str, int] = {}

    def __call__(self, where: str, text: str) -> str:
        self.searched[where] = self.searched.get(where, 0) + len(text)
        self.found += [f"the secret of {name} in {where}" for name, secret in PLANTED.items() if secret in text]
        return text


def command_lines() -> str:
    """Return the arguments of all processes, as ``ps`` shows them to every user."""
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                lines.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue  # it has ended
    return "\n".join(lines)


def read_page(url: str, user: Credentials) -> str:
    """Return what a page says, also where it refuses to say it."""
    basic = base64.b64encode(f"{user.access_key}:{user.secret_key}".encode()).decode()
    try:
        asked = urllib.request.Request(url, headers={"Authorization": f"Basic {basic}"})
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return f"{answer.headers}{answer.read().decode()}"
    except urllib.error.HTTPError as error:
        return str(error.headers) + error.read().decode()


def bad_requests(address: str) -> str:
    """Send requests that carry secrets and are refused, each for another reason; return the answers."""
    answers: list[Any] = []

    def ask(code: int, fields: dict[str, str], body: bytes = b"", user: Credentials = ROOT) -> None:
        answers.append(ask_json(address, code, {**fields, **sign(user, fields, body)}, body=body))

    account = {"accessKey": "account-user", "secretKey": PLANTED["account"], "admin": "false"}
    ask(UPDATE_ACCOUNT, {**account, "topicPerms": "orders=NOTHING"})
    ask(UPDATE_ACCOUNT, {**account, "accessKey": "no name"})
    ask(UPDATE_ACCOUNT, {"secretKey": PLANTED["account"]})
    ask(UPDATE_ACCOUNT, account)
    ask(CREATE_USER, {"username": "account-user"}, json.dumps({"password": PLANTED["account"]}).encode())
    ask(CREATE_USER, {"username": "b"}, f'{{"password":"{PLANTED["broken"]}'.encode())
    ask(CREATE_USER, {"username": "b"}, json.dumps({"password": [PLANTED["broken"]]}).encode())
    ask(CREATE_USER, {"username": "b"}, json.dumps({"password": PLANTED["broken"] + "\n"}).encode())
    ask(UPDATE_USER, {"username": "nobody"}, json.dumps({"password": PLANTED["changed"]}).encode())
    ask(CREATE_USER, {"username": "b"}, b"", Credentials("root", PLANTED["wrong"]))
    ask(CREATE_USER, {"username": "b"}, b"", Credentials("root", PLANTED["root"], PLANTED["token"]))
    return str(answers)


async def ignore(message: ReceivedMessage) -> None:
    """Take a message."""


async def use_the_sdk(namesrv: str, search: Search) -> None:
    """Send, consume and fail with keys that are right, wrong and unknown."""
    for credentials in (
        Credentials("app", PLANTED["app"], PLANTED["token"]),
        Credentials("app", PLANTED["wrong"]),
        Credentials("unknown", PLANTED["app"]),
    ):
        search("a repr", f"{credentials!r} {credentials} {vars(type(credentials))}")
        for topic in ("orders", "payments"):
            try:
                producer = Producer("p", namesrv, credentials=credentials)
                search("a repr", f"{producer!r} {producer}")
                async with producer:
                    await producer.send(Message(topic, b"x"))
            except PocketMQError as error:
                search("a traceback", "".join(traceback.format_exception(error)) + repr(error))
        try:
            consumer = PushConsumer("group", namesrv, credentials=credentials)
            consumer.subscribe("orders")(ignore)
            async with consumer:
                await asyncio.sleep(0)
        except PocketMQError as error:
            search("a traceback", "".join(traceback.format_exception(error)) + repr(error))


def test_no_secret_leaves(
    start_daemon: StartDaemon,
    run_command: RunCommand,
    run_process: RunCommand,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    search = Search()
    caplog.set_level(logging.DEBUG)
    data = tmp_path / "data"
    port = free_port()
    arguments = ["--namesrv-port", "0", "--broker-port", "0", "--data-dir", str(data)]
    arguments += ("--set", f"metrics.listen_port={port}", "--set", "store.mapped_file_size_commit_log=8388608")
    daemon = start_daemon("standalone", *arguments, env=SETTINGS)
    asking = {"POCKETMQ_NAMESRV": daemon.namesrv}
    root = {**asking, "POCKETMQ_ACCESS_KEY": "root", "POCKETMQ_SECRET_KEY": PLANTED["root"]}

    def run(*words: str, env: dict[str, str] = root, stdin: bytes = b"", run: RunCommand = run_command) -> str:
        done = run(*words, env=env, stdin=stdin)
        return search(" ".join(words[:2]), (done.stdout + done.stderr).decode(errors="replace"))

    # users, by every way that takes a secret
    (tmp_path / "password").write_text(PLANTED["app"] + "\n")
    (tmp_path / "password").chmod(0o600)
    run("user", "create", "app", "--password-file", "password")
    run("acl", "create", "app", "Topic:orders", "All")
    run("user", "create", "app", "--password-file", "-", stdin=PLANTED["changed"].encode())
    run("user", "update", "app", "--password-file", "-", stdin=b"short")
    for words in (("user", "list"), ("user", "list", "--json"), ("acl", "list"), ("acl", "log"), ("whoami", "--json")):
        assert run(*words)
    run("acl", "test", "app", "Topic:orders", "Pub")
    app = {**asking, "POCKETMQ_ACCESS_KEY": "app", "POCKETMQ_SECRET_KEY": PLANTED["app"]}
    run("produce", "orders", env=app, stdin=b"one\n")
    run("produce", "payments", env=app, stdin=b"one\n")
    run("produce", "orders", env={**app, "POCKETMQ_SECRET_KEY": PLANTED["wrong"]}, stdin=b"x\n")
    run("produce", "orders", env={**app, "POCKETMQ_SECRET_KEY": PLANTED["broken"] + "\n\n"}, stdin=b"x\n")
    doctor = run("doctor", "--broker", daemon.broker)
    assert "access" in doctor
    run("doctor", "--json")
    run("brokers", "--json")

    # settings, also those that cannot be read
    assert "init_password" in run("config", "show", "auth", env={**root, **SETTINGS})
    run("config", "show", "--json", env={**root, **SETTINGS})
    for name, text in {
        "good.toml": f'[auth]\ninit_username = "root"\ninit_password = "{PLANTED["file"]}"\n',
        "open.toml": f'[auth]\ninit_password = "{PLANTED["quoted"]}\n',
        "twice.toml": f'[auth]\ninit_password = "{PLANTED["file"]}"\ninit_password = "{PLANTED["file"]}"\n',
        "type.toml": f'[auth]\ninit_password = ["{PLANTED["file"]}"]\n',
        "name.toml": f'[auth]\ninit_pasword = "{PLANTED["file"]}"\n',
        "alone.toml": f'[auth]\ninit_password = "{PLANTED["file"]}"\n',
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
        run("config", "show", "--config", name)
        if name != "good.toml":
            run("namesrv", "--config", name, run=run_process)
    run("config", "show", "--set", f"auth.init_password={PLANTED['option']}")
    for name, text in {
        "connections.toml": f'[prod]\naccess_key = "app"\nsecret_key = "{PLANTED["app"]}"\n',
        "broken.toml": f'[prod]\nsecret_key = "{PLANTED["quoted"]}\n',
        "key.toml": f'[prod]\nsecret = "{PLANTED["quoted"]}"\n',
    }.items():
        (tmp_path / name).write_text(text)
        for mode in (0o600, 0o644):
            (tmp_path / name).chmod(mode)
            run("--connection", "prod", "whoami", env={**asking, "POCKETMQ_CONNECTIONS_FILE": str(tmp_path / name)})

    # what others can ask, and see
    search("answers", bad_requests(daemon.broker) + bad_requests(daemon.namesrv))
    asyncio.run(use_the_sdk(daemon.namesrv, search))
    for page in ("metrics", "health"):
        for user in (ROOT, Credentials("app", PLANTED["app"]), Credentials("app", PLANTED["wrong"])):
            search(page, read_page(f"http://127.0.0.1:{port}/{page}", user))
    search("ps", command_lines())
    search("the SDK's log", caplog.text + str([vars(record) for record in caplog.records]))
    ready = daemon.ready
    search("ready line", ready)
    _, out, errors = daemon.end(signal.SIGABRT)
    assert "Fatal Python error" in errors or "Current thread" in errors, "the dump of a process that is killed"
    assert '"auth_changed"' in errors or "auth_changed" in errors
    search("output of the server", out + errors)
    files = [path for path in data.rglob("*") if path.is_file()]
    kept = data / "config" / "auth.json"
    assert kept in files
    for path in files:
        if path != kept:
            search(f"file {path.relative_to(data)}", path.read_bytes().decode("latin-1"))
    assert PLANTED["app"] in kept.read_text(), "what is searched for can be found"
    assert search.found == []
    assert len(search.searched) > 20, search.searched
    assert os.environ.get("POCKETMQ_SECRET_KEY") is None
