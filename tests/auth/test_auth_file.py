"""The file of users and policies."""

import os
from pathlib import Path

import pytest

from pocketmq.auth.auth_file import AuthFile
from pocketmq.auth.auth_table import AuthContents
from pocketmq.auth.errors import AuthFileUnreadable, AuthNotWritten
from pocketmq.auth.users import User

CONTENTS = AuthContents().with_user(User(username="alice", password="alice-secret"))


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    file = AuthFile(str(tmp_path / "config" / "auth.json"))
    assert file.load() is None
    (tmp_path / "config").mkdir()
    leftover = tmp_path / "config" / "auth.json.tmp"
    leftover.write_bytes(b"half")
    leftover.chmod(0o644)
    file.save(CONTENTS)
    file.save(CONTENTS)
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.load() == CONTENTS
    assert os.listdir(file.path.parent) == ["auth.json"]


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = AuthFile(str(tmp_path / "auth.json"))
    file.save(CONTENTS)
    file.path.chmod(0o640)
    with pytest.raises(AuthFileUnreadable, match="chmod 600"):
        file.load()


@pytest.mark.parametrize("cut", [0, 1, 20, -1])
def test_a_damaged_file_is_never_an_empty_one(cut: int, tmp_path: Path) -> None:
    file = AuthFile(str(tmp_path / "auth.json"))
    file.save(CONTENTS)
    content = file.path.read_bytes()
    file.path.write_bytes(content[:cut])
    with pytest.raises(AuthFileUnreadable) as refused:
        file.load()
    assert "alice-secret" not in str(refused.value)
    file.path.write_bytes(content.replace(b"alice-secret", b"alice-Secret"))
    with pytest.raises(AuthFileUnreadable, match="crc"):
        file.load()


def test_a_change_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a file where the directory should be")
    with pytest.raises(AuthNotWritten):
        AuthFile(str(tmp_path / "config" / "auth.json")).save(CONTENTS)
