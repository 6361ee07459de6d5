"""Keys and TLS of sources, sinks and jobs."""

import pickle
from contextvars import Context, copy_context
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import TLS, Credentials
from pocketmq.pipeline.access import (
    ACCESS_OPTIONS,
    NO_ACCESS,
    Access,
    from_environment,
    job_access,
    use_access,
)
from pocketmq.pipeline.errors import OptionIllegal
from pocketmq.pipeline.options import Options
from pocketmq.pipeline.source.range_reader import ReadPlan

SECRET = "hidden-secret"
WHOLE = Access(
    Credentials("app", SECRET, "hidden-token"),
    TLS(cert="c.pem", key="k.pem", key_password="hidden-password", server_hostname="mq", verify=False),
)


def access(**given: str) -> Access:
    return Access.of(Options(given, ACCESS_OPTIONS))


def test_nothing_given_is_plain() -> None:
    assert access() == NO_ACCESS
    assert access(tls="false", tlsCa="ca.pem") == NO_ACCESS


def test_keys_and_tls(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    expected = Access(Credentials("app", SECRET), TLS(ca="ca.pem"))
    assert access(accessKey="app", secretKey=SECRET, tlsCa="ca.pem") == expected
    assert access(accesskey="app", secretkeyfile=str(file), tls="true", tlsca="ca.pem") == expected


@pytest.mark.parametrize("value", [NO_ACCESS, WHOLE, Access(tls=TLS()), Access(Credentials("a", "b"))])
def test_the_options_of_an_access_make_it_again(value: Access) -> None:
    """So a job's own reads and writes have its keys; and a plan travels with its tasks."""
    assert access(**value.options()) == value
    assert pickle.loads(pickle.dumps(value)) == value


def test_the_environment_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    given = {"POCKETMQ_ACCESS_KEY": "app", "POCKETMQ_SECRET_KEY_FILE": str(file), "POCKETMQ_TLS_SERVER_HOSTNAME": "mq"}
    expected = Access(Credentials("app", SECRET), TLS(server_hostname="mq"))
    assert from_environment({**given, "POCKETMQ_NAMESRV": "a:1", "POCKETMQ_TLS_CA": ""}) == expected
    for name, text in given.items():
        monkeypatch.setenv(name, text)
    assert Context().run(job_access) == expected  # a job of another test may have left its keys here

    def with_its_own() -> Access:
        use_access(WHOLE)
        return job_access()

    assert copy_context().run(with_its_own) == WHOLE


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"accessKey": "app"}, "accessKey without a secret"),
        ({"secretKey": SECRET}, "accessKey"),
        ({"secretKey": SECRET, "secretKeyFile": "f", "accessKey": "app"}, "contradict"),
        ({"secretKeyFile": "/nowhere", "accessKey": "app"}, "/nowhere: No such file"),
        ({"secretKey": f"{SECRET}\x01", "accessKey": "app"}, "control character"),
        ({"tlsVerify": "perhaps"}, "tlsVerify"),
        ({"secretKy": SECRET}, "did you mean secretKey"),
    ],
)
def test_what_cannot_be_used(given: dict[str, str], why: str) -> None:
    with pytest.raises(OptionIllegal) as caught:
        access(**given)
    assert why in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_plan_shows_no_secret() -> None:
    values: Any = ("a:1", "g", (), 1, 1, 1, True, "", WHOLE)
    assert "hidden" not in repr(ReadPlan(*values))
