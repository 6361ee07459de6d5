"""Keys and TLS of the commands: from options, the environment, and the file of connections."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli.connection import VARIABLES, connect_with, given
from pocketmq.cli.daemon.daemon import load_settings
from pocketmq.client import TLS, Credentials
from pocketmq.client.connection.broker_addresses import VARIABLE as BROKER_ADDRESSES
from pocketmq.common.errors import ConfigError
from pocketmq.common.settings import CLIENT_VARIABLES
from pocketmq.testing.broker import PocketBroker
from tests.cli.conftest import RunCommand
from tests.remoting.protected_servers import ALICE, CERTIFICATES, ProofOfAlice

ROOT = Path(__file__).parents[2]
SECRET = "hidden-secret"
FILE = f"""
[prod]
namesrv = "10.0.0.1:9876"
access_key = "prod-user"
secret_key = "{SECRET}"
tls_ca = "/etc/ca.pem"

[local]
access_key = "local-user"
secret_key_file = "KEY_FILE"
tls = true
tls_verify = false
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with two connections and a file with a secret."""
    key_file = tmp_path / "key"
    key_file.write_text(f"{SECRET}-in-a-file\n")
    directory = tmp_path / "pocketmq"
    directory.mkdir()
    file = directory / "connections.toml"
    file.write_text(FILE.replace("KEY_FILE", str(key_file)))
    file.chmod(0o600)
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def connected(environment: dict[str, str], **options: Any) -> tuple[str, Credentials | None, TLS | None]:
    namesrv = connect_with({f"_{name}": value for name, value in options.items()}, environment)
    return namesrv, given()["credentials"], given()["tls"]


def test_nothing_given_is_plain() -> None:
    assert connected({}) == ("", None, None)


def test_a_named_connection(home: dict[str, str]) -> None:
    expected = ("10.0.0.1:9876", Credentials("prod-user", SECRET), TLS(ca="/etc/ca.pem"))
    assert connected(home, connection="prod") == expected
    assert connected({**home, "POCKETMQ_CONNECTION": "prod"}) == expected
    assert connected(home, connection="local") == (
        "",
        Credentials("local-user", f"{SECRET}-in-a-file"),
        TLS(verify=False),
    )


def test_the_environment(home: dict[str, str]) -> None:
    environment = {
        "POCKETMQ_NAMESRV": "a:1",
        "POCKETMQ_ACCESS_KEY": "user",
        "POCKETMQ_SECRET_KEY": SECRET,
        "POCKETMQ_SECURITY_TOKEN": "token",
        "POCKETMQ_TLS_CERT": "~/client.pem",
        "POCKETMQ_TLS_KEY_PASSWORD": "open",
        "POCKETMQ_TLS_VERIFY": "False",
    }
    tls = TLS(cert=str(Path.home() / "client.pem"), key_password="open", verify=False)
    assert connected(environment) == ("a:1", Credentials("user", SECRET, "token"), tls)
    assert connected({"POCKETMQ_TLS": "true"})[2] == TLS()
    assert connected({"POCKETMQ_TLS": "0", "POCKETMQ_TLS_CA": "ca.pem"})[2] is None
    with pytest.raises(ConfigError, match="POCKETMQ_TLS: 'perhaps'"):
        connected({"POCKETMQ_TLS": "perhaps"})


def test_the_order_of_the_places(home: dict[str, str]) -> None:
    """Option, connection of an option, environment, connection of the environment."""
    environment = {**home, "POCKETMQ_ACCESS_KEY": "by-environment", "POCKETMQ_NAMESRV": "env:1"}
    assert connected({**environment, "POCKETMQ_CONNECTION": "prod"})[:2] == (
        "env:1",
        Credentials("by-environment", SECRET),
    )
    assert connected(environment, connection="prod")[:2] == ("10.0.0.1:9876", Credentials("prod-user", SECRET))
    assert connected(environment, connection="prod", access_key="by-option")[1] == Credentials("by-option", SECRET)
    assert connected(environment, connection="prod", tls=False)[2] is None


def test_a_secret_and_the_file_of_another_do_not_mix(home: dict[str, str], tmp_path: Path) -> None:
    """The nearer place counts, in whichever of the two ways it gives the secret."""
    by_file = connected(home, connection="prod", secret_key_file=str(tmp_path / "key"))[1]
    assert by_file == Credentials("prod-user", f"{SECRET}-in-a-file")
    nearer = {**home, "POCKETMQ_CONNECTION": "local", "POCKETMQ_SECRET_KEY": "another"}
    assert connected(nearer)[1] == Credentials("local-user", "another")


@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_the_tools_yml_of_rocketmq(quote: str, tmp_path: Path) -> None:
    file = tmp_path / "tools.yml"
    file.write_text(f"# comment\naccessKey: {quote}rocketmq2{quote}\nsecretKey: {quote}12345678{quote}  # end\n")
    assert connected({}, secret_key_file=str(file))[1] == Credentials("rocketmq2", "12345678")
    assert connected({}, secret_key_file=str(file), access_key="other")[1] == Credentials("other", "12345678")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"access_key": "alice"}, ["no secret key", "--secret-key-file"]),
        ({"secret_key_file": "key"}, ["no access key", "--access-key"]),
        ({"secret_key_file": "nowhere", "access_key": "alice"}, ["nowhere: No such file"]),
        ({"secret_key_file": "empty", "access_key": "alice"}, ["is empty"]),
        ({"secret_key_file": "long", "access_key": "alice"}, ["more than 65536 bytes"]),
        ({"secret_key_file": "two lines", "access_key": "alice"}, ["control character"]),
        ({"secret_key_file": "not.yml", "access_key": "alice"}, ["no line secretKey:"]),
        ({"secret_key_file": "latin", "access_key": "alice"}, ["no UTF-8"]),
        ({"connection": "else"}, ["no connection else", "local, prod"]),
    ],
)
def test_what_cannot_be_used(
    options: dict[str, str], words: list[str], home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "long").write_text(SECRET * 10_000)
    (tmp_path / "two lines").write_text(f"{SECRET}\n{SECRET}\n")
    (tmp_path / "not.yml").write_text(f"secret: {SECRET}\n")
    (tmp_path / "latin").write_bytes(SECRET.encode() + b"\xff")
    with pytest.raises(Exception, match=words[0]) as caught:
        connected(home, **options)
    assert all(word in str(caught.value) for word in words)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (FILE, 0o644, "chmod 600"),
        (FILE, 0o640, "others may read it: mode 0640"),
        (f'[prod]\nsecret_key = "{SECRET}', 0o600, "refused: no TOML"),
        (f'[prod]\nsecret = "{SECRET}"\n', 0o600, "[prod] has secret"),
        (f'[prod]\nsecret_key = ["{SECRET}"]\n', 0o600, "secret_key is list"),
        ('[prod]\ntls = "yes"\n', 0o600, "tls is str"),
        ('prod = "x"\n', 0o600, "has none"),
        (None, 0o600, "No such file"),
    ],
)
def test_a_file_of_connections_that_is_refused(content: str | None, mode: int, why: str, home: dict[str, str]) -> None:
    """A file that others may read is no place for secrets; no error shows what is in it."""
    file = Path(home["XDG_CONFIG_HOME"]) / "pocketmq" / "connections.toml"
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
        file.chmod(mode)
    with pytest.raises(ConfigError) as caught:
        connected(home, connection="prod")
    assert why in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None or SECRET not in str(caught.value.__cause__)


def test_no_variable_looks_like_a_setting_of_a_daemon() -> None:
    """Those have two underscores between section and key; there are sections ``tls`` and ``broker``."""
    of_tls = {name for name in VARIABLES if name.startswith("POCKETMQ_TLS_")}
    assert of_tls | {BROKER_ADDRESSES} == CLIENT_VARIABLES
    assert load_settings({}, None, [], dict.fromkeys(CLIENT_VARIABLES, "x")).notes == ()
    assert not [name for name in VARIABLES if "__" in name]


@pytest.fixture(scope="module")
def guarded() -> Iterator[PocketBroker]:
    """A broker that knows alice; its name server lets everyone in."""
    with PocketBroker() as running:
        assert running.app._server is not None
        running.app._server.guard = ProofOfAlice()
        yield running


def test_commands_prove_their_user(guarded: PocketBroker, run_command: RunCommand, tmp_path: Path) -> None:
    """A send, a read, administration, the doctor; a command without keys is told what to give."""
    (tmp_path / "key").write_text(ALICE.secret_key)
    before = ("--access-key", "alice", "--secret-key-file", str(tmp_path / "key"))
    env = {"POCKETMQ_NAMESRV": guarded.namesrv}
    for command in (
        ("topic", "create", "T"),
        ("produce", "T"),
        ("consume", "T", "--from", "earliest"),
        ("group", "list"),
        ("doctor",),
    ):
        result = run_command(*before, *command, env=env, stdin=b"a line\n")
        assert result.returncode == 0, result.stderr
    without = run_command("topic", "create", "U", env=env)
    assert without.returncode != 0
    assert b"--access-key and --secret-key-file" in without.stderr
    wrong = run_command(
        "topic", "create", "U", env={**env, "POCKETMQ_ACCESS_KEY": "alice", "POCKETMQ_SECRET_KEY": SECRET}
    )
    assert wrong.returncode == 1
    assert b"refused the credentials of alice" in wrong.stderr
    assert SECRET.encode() not in wrong.stderr


def test_a_key_that_is_named_like_a_command(guarded: PocketBroker, run_command: RunCommand, tmp_path: Path) -> None:
    """``topic`` here is a user."""
    (tmp_path / "key").write_text("x")
    result = run_command("--access-key", "topic", "--secret-key-file", str(tmp_path / "key"), "group", "--help")
    assert result.returncode == 0
    assert b"pocketmq group" in result.stdout


def test_tls_of_a_command(guarded: PocketBroker, run_command: RunCommand) -> None:
    """No command falls back to plain."""
    result = run_command(
        "--tls-ca", str(CERTIFICATES / "ca.pem"), "topic", "list", env={"POCKETMQ_NAMESRV": guarded.namesrv}
    )
    assert result.returncode != 0
    assert b"TLS" in result.stderr


def test_every_command_connects_with_what_is_given() -> None:
    """A new command must not forget the keys: each class of the SDK gets ``**given()``, or an instance with them."""
    classes = {"Admin", "Producer", "PullConsumer", "PushConsumer", "ClientInstance", "TransactionProducer"}
    found = 0
    for path in sorted((ROOT / "cli").rglob("*.py")):
        if "scenario" in path.parts:  # their clusters are their own
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes:
                found += 1
                given_too = [each for each in node.keywords if each.arg in (None, "instance")]
                assert given_too, f"{path.name} line {node.lineno}: {node.func.id} without **given()"
    assert found > 10
