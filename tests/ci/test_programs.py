"""Which programs CI installs, and what it reports about missing ones."""

from collections.abc import Sequence

from tests.ci.programs import PACKAGES, UPDATE, provide


class Machine:
    """A machine with some programs, and an apt that answers or fails."""

    def __init__(self, *there: str, answers: bool = True, packages: Sequence[str] = ()) -> None:
        self.there, self.answers, self.packages = set(there), answers, set(packages)
        self.installed: list[str] = []

    def missing(self) -> list[str]:
        return [program for program in PACKAGES if program not in self.there]

    def run(self, command: Sequence[str]) -> int:
        if not self.answers:
            return 100
        if command == UPDATE:
            return 0
        package = command[-1]
        self.installed.append(package)
        if package not in self.packages:
            return 100
        self.there |= {program for program, names in PACKAGES.items() if package in names}
        return 0


def test_nothing_is_installed_where_all_is_there() -> None:
    machine = Machine(*PACKAGES)
    assert provide(machine.missing, machine.run, may_install=True) == ([], [])
    assert machine.installed == []


def test_what_is_missing_is_installed_once_and_from_the_second_package_where_the_first_is_gone() -> None:
    """``java`` and ``javac`` come in one package."""
    machine = Machine(
        "mvn", "redis-server", "postgres", "promtool", packages=["mariadb-server", "default-jdk-headless"]
    )
    assert provide(machine.missing, machine.run, may_install=True) == ([], [])
    assert machine.installed == ["mariadb-server", "openjdk-17-jdk-headless", "default-jdk-headless"]


def test_a_registry_that_does_not_answer_is_told_apart_from_a_package_that_fails() -> None:
    silent = Machine("java", "javac", "mvn", "promtool", answers=False)
    assert provide(silent.missing, silent.run, may_install=True) == (["redis-server", "mariadbd", "postgres"], [])
    broken = Machine("java", "javac", "mvn", "promtool", "postgres", packages=["redis-server"])
    assert provide(broken.missing, broken.run, may_install=True) == ([], ["mariadbd"])


def test_without_the_right_to_install_a_missing_program_fails() -> None:
    machine = Machine("java", "javac", "mvn", "promtool", "mariadbd", "postgres")
    assert provide(machine.missing, machine.run, may_install=False) == ([], ["redis-server"])
