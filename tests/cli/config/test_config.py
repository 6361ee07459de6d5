"""``pocketmq config``, the files in ``conf/`` and docs/settings.md: every setting, from one source."""

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from docs.tables import ROOT, texts
from pocketmq.cli.config.template import COMMANDS, docs_of_daemons, template
from pocketmq.cli.daemon.daemon import SECTIONS, load_settings
from pocketmq.common.errors import ConfigError

PACKAGES: Final = sorted(path.name for path in (ROOT / "src" / "pocketmq").iterdir() if path.is_symlink())
PAGES: Final = (
    "docs/*.md",
    "conf/**/*.toml",
    "conf/**/*.service",
    "examples/**/*.md",
    "*.yaml",
    "Dockerfile",
    "README.md",
)
NAMED: Final = re.compile(rf"(?<![\w./-])({'|'.join(SECTIONS)})\.([a-z]+(?:_[a-z0-9]+)+)\b(?!\()")
"""A setting as texts name it; the underscore tells it from a file or a module."""
VARIABLE: Final = re.compile(r"POCKETMQ_([A-Z]+)__([A-Z0-9_]+)")
NO_SETTINGS: Final = {"log.flush_count", "log.last_flush_ns", "section.key"}
"""Attributes of the commit log, and the pattern of a variable."""


def test_every_setting_has_a_text() -> None:
    """Each is one or more whole sentences, and none refers to the setting above it."""
    docs = docs_of_daemons()
    assert len(docs) == sum(len(struct.__struct_fields__) for struct in SECTIONS.values())
    for doc in docs:
        assert doc.text.endswith((".", ".)")), doc.name
        assert "The same for" not in doc.text, doc.name


def test_generated_texts_are_up_to_date() -> None:
    """After a change to a setting, run ``make docs-tables``."""
    for name, text in texts():
        assert (ROOT / name).read_text() == text, f"{name}: run make docs-tables"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_template_holds_the_defaults(command: str, tmp_path: Path) -> None:
    """With every comment sign removed from its settings a template changes nothing."""
    lines = [line[1:] if re.match(r"#\w+ = ", line) else line for line in template(command).splitlines()]
    table = tomllib.loads("\n".join(lines))
    assert tuple(table) == COMMANDS[command][1]
    (tmp_path / "all.toml").write_text("\n".join(lines))
    given = load_settings({}, str(tmp_path / "all.toml"), [], {})
    defaults = load_settings({}, None, [], {})
    for section, content in table.items():
        assert set(content) == set(SECTIONS[section].__struct_fields__)
        assert given.get(SECTIONS[section]) == defaults.get(SECTIONS[section])


def _is_module(name: str) -> bool:
    return (ROOT / f"{name.replace('.', '/')}.py").exists()


def _strings() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value
    for path in sorted(path for pattern in PAGES for path in ROOT.glob(pattern)):
        yield str(path.relative_to(ROOT)), path.read_text()


def _settings_named(text: str) -> Iterator[str]:
    yield from (match[0] for match in NAMED.finditer(text))
    yield from (f"{match[1]}.{match[2]}".lower() for match in VARIABLE.finditer(text))


def test_no_text_names_a_setting_that_does_not_exist() -> None:
    """Advice, errors, comments, pages: ``section.key`` is always a setting, and so is its variable."""
    settings = {doc.name for doc in docs_of_daemons()} | {
        f"{section}.{former}" for section, struct in SECTIONS.items() for former in getattr(struct, "former_names", {})
    }
    found = {(where, name) for where, text in _strings() for name in _settings_named(text)}
    assert len(found) > 100, "the pattern finds nothing"
    settings |= NO_SETTINGS
    unknown = sorted((where, name) for where, name in found if name not in settings and not _is_module(name))
    assert unknown == []


@pytest.mark.parametrize(
    ("flag", "suggested"),
    [
        ("broker.metrics_port=1", "did you mean 'metrics.listen_port'?"),
        ("metrics.port=1", "did you mean 'listen_port'?"),
        ("broker.file_reserved_time=1", "did you mean 'store.file_reserved_time'?"),
        ("metrics.nonsense=1", "see: pocketmq config show metrics"),
        ("store.flushDiskTyp=1", "did you mean 'flush_disk_type'?"),
    ],
)
def test_suggestions(flag: str, suggested: str) -> None:
    """A key of another section is suggested only where it is exact, or the section stands in front of it."""
    with pytest.raises(ConfigError, match=re.escape(suggested)):
        load_settings({}, None, [flag], {})


def test_show_names_value_and_origin(tmp_path: Path, run_command: Any) -> None:
    """The value in force, from the strongest place that gives it."""
    file = tmp_path / "broker.toml"
    file.write_text("[store]\nfile_reserved_time = 5\nmax_message_size = 100\n")
    result = run_command(
        "config", "show", "--json", "--config", str(file), "--changed", env={"POCKETMQ_STORE__MAX_MESSAGE_SIZE": "200"}
    )
    rows = {row["name"]: row for row in json.loads(result.stdout) if row["name"].startswith("store.")}
    assert {name: row["value"] for name, row in rows.items()} == {
        "store.file_reserved_time": 5,
        "store.max_message_size": 200,
    }
    assert rows["store.file_reserved_time"]["origin"] == f"{file} line 2"
    assert rows["store.file_reserved_time"]["default"] == 72
    assert rows["store.max_message_size"]["origin"] == "environment variable POCKETMQ_STORE__MAX_MESSAGE_SIZE"


def test_show_takes_a_section_a_name_or_a_part(run_command: Any) -> None:
    """``metrics``: a section; ``flush_disk``: a part of a name."""

    def shown(*names: str) -> list[str]:
        return [row["name"] for row in json.loads(run_command("config", "show", "--json", *names).stdout)]

    assert shown("metrics") == ["metrics.bind_address", "metrics.listen_port", "metrics.series_max"]
    assert shown("flush_disk", "log.level") == ["store.flush_disk_type", "log.level", "log.levels"]
    unknown = run_command("config", "show", "flush_disc_typ")
    assert unknown.returncode == 1
    assert b"did you mean store.flush_disk_type" in unknown.stderr


def test_show_prints_toml_that_a_daemon_reads(run_command: Any) -> None:
    """What it prints is a settings file."""
    out = run_command("config", "show", "--set", "store.file_reserved_time=5").stdout.decode()
    table = tomllib.loads(out)
    assert table["store"]["file_reserved_time"] == 5
    assert "file_reserved_time = 5  # --set store.file_reserved_time=5; default: 72" in out
    assert set(table) == set(SECTIONS)


def test_template_prints_the_file(run_command: Any) -> None:
    """The same text as in ``conf/``; an unknown command is refused with those that exist."""
    assert run_command("config", "template", "broker").stdout.decode() == template("broker")
    refused = run_command("config", "template", "slave")
    assert refused.returncode == 1
    assert b"standalone, broker, namesrv" in refused.stderr
