"""Addresses as text.

Lives here: ``address_text``: host and port in one.
"""


def address_text(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address.

    >>> address_text("10.0.0.1", 9876), address_text("::1", 9876)
    ('10.0.0.1:9876', '[::1]:9876')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
