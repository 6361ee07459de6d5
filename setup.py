"""The package's description: README.md for readers who have no repository beside it.

Everything else about the package is in pyproject.toml. A package index shows README.md alone, where links to pages of
the repository lead nowhere: here they become their text.
"""

import re
from pathlib import Path

from setuptools import setup

README = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
LINK_INTO_REPOSITORY = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)[^)\s]*\)")

setup(
    long_description=LINK_INTO_REPOSITORY.sub(r"\1", README),
    long_description_content_type="text/markdown",
)
