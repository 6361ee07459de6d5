"""What the tables of RocketMQ's texts share: how a text is named, and who sends again.

Lives here: ``texts``, ``of_refusals``; the sentences about retries.
"""

from typing import Final

from pocketmq.common.refusal_row import Request, Side, Text
from pocketmq.common.refusals import REFUSALS

_OF_REFUSALS: Final = {text.template: text for row in REFUSALS.values() for text in row.texts}


def of_refusals(template: str) -> Text:
    """Return the text of the table of refusals that has this template; ``KeyError``: none has."""
    return _OF_REFUSALS[template]


def texts(by: Side, *templates: str, code: int = 0, request: Request = Request.SEND) -> tuple[Text, ...]:
    """Return texts that the same program writes about the same call, with the same code."""
    return tuple(Text(template, code, by=by, request=request) for template in templates)


NOT_AGAIN: Final = "no client: the send ends with it"
NO_ONE: Final = "nothing is sent again, since this is no answer to a send"
SYNC_AGAIN: Final = (
    "synchronous sends of RocketMQ 4.9, 5.3 and PocketMQ try another broker, up to retryTimesWhenSendFailed times and "
    "as long as the send has time left; asynchronous ones of RocketMQ up to retryTimesWhenSendAsyncFailed times"
)
STATUS_AGAIN: Final = (
    "no client by default, since the message is stored; with retryAnotherBrokerWhenNotStoreOK synchronous sends go to "
    "another broker, which makes a second copy"
)
PULL_AGAIN: Final = "push consumers of RocketMQ 4.9, 5.3 and PocketMQ pull again after a second, as often as it takes"
