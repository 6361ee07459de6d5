"""Texts of peers and files on their way to a terminal, a log or an error.

Lives here: ``printable``.
"""


def printable(text: str, keep: str = "") -> str:
    """Return ``text`` with its unprintable characters escaped as Python writes them, but for those in ``keep``.

    A peer's text must not forge a line of a log or move the cursor of a terminal.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)
