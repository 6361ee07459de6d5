"""``pocketmq whoami``: the user that each server takes this client for.

Lives here: options and output.
"""

from typing import TYPE_CHECKING

from pocketmq.cli import options
from pocketmq.cli.admin.access_output import run_access
from pocketmq.cli.output import print_rows

if TYPE_CHECKING:
    from pocketmq.client.admin.access_admin import AccessAdmin

COLUMNS = ("server", "user", "type", "proved_by", "address", "policies")


def whoami(as_json: options.Json = False, namesrv: options.Namesrv = options.DEFAULT_NAMESRV) -> None:
    """Show the user that each server takes this client for, and whether policies count there."""

    async def body(access: "AccessAdmin") -> None:
        rows = [
            (
                address,
                found.username or "-",
                found.user_type or "-",
                found.how or "nothing is checked",
                found.address,
                "count" if found.authorization else "do not count",
            )
            for address, found in (await access.who_am_i()).items()
        ]
        print_rows(COLUMNS, rows, as_json)

    run_access(namesrv, body)
