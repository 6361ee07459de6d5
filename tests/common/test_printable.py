"""Texts of peers: no control character of theirs reaches a terminal or forges a line of a log."""

import logging

import pytest

from pocketmq.client.errors import Attempt, NoNameServer, SendFailed, answer_error
from pocketmq.client.log import StandardLog
from pocketmq.common.printable import printable

ESC = "\x1b[2J\x1b]0;title\x07"


def test_only_what_is_kept_stays() -> None:
    """Letters of any script stay; escapes, bidirectional marks and lone surrogates are shown as Python writes them."""
    assert printable("Größe 大小") == "Größe 大小"
    assert printable("a\x1bb\u202ec\ud800\n") == "a\\x1bb\\u202ec\\ud800\\n"
    assert printable("a\nb\t", keep="\n\t") == "a\nb\t"


def test_no_error_shows_what_a_peer_wants_to_do_to_the_terminal() -> None:
    """In a traceback, a log, or printed: whatever part of the error the text has come into."""
    attempt = Attempt("b", "1.2.3.4:1", "answer", 1.0, 1, f"remark {ESC}")
    errors = [
        answer_error("list refused", answer_code=1, remark=f"no\n{ESC}", address="1.2.3.4:1"),
        NoNameServer(ESC, why=ESC, hint=ESC),
        SendFailed("send failed", attempts=[attempt], hint=ESC),
    ]
    for error in errors:
        assert "\x1b" not in str(error)
        assert "\\x1b[2J" in str(error)
    assert "no\n" in str(errors[0])  # RocketMQ's texts have several lines


def test_the_clients_log_is_clean_too(caplog: pytest.LogCaptureFixture) -> None:
    """An event is one line, whatever its values are."""
    with caplog.at_level(logging.WARNING):
        StandardLog().warning("pull_failed", error=f"x{ESC}\nforged line")
    assert caplog.messages == ["pull_failed error=x\\x1b[2J\\x1b]0;title\\x07\\nforged line"]
