"""Checks of this consumer's subscriptions by brokers.

Lives here: ``SubscriptionCheck``: a broker checks filters before the start (CHECK_CLIENT_CONFIG), and a group whose
members subscribe differently is logged, once for each difference.
"""

from collections.abc import Sequence

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.errors import SubscriptionIllegal
from pocketmq.client.pull.subscription import Subscription, subscription_data
from pocketmq.common.errors import PocketMQError
from pocketmq.common.sql_filter import TAG_TYPE
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.client import CheckClientBody


class SubscriptionCheck:
    """The checks of one consumer."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._logged = ""

    async def filters(self, subscriptions: Sequence[Subscription]) -> None:
        """Ask one broker of each filtered topic whether it takes the filter; raise ``SubscriptionIllegal`` if not.

        A topic without a route, or a broker that does not answer, does not prevent the start (as RocketMQ
        checkClientInBroker).
        """
        for subscription in subscriptions:
            if subscription.expression_type != TAG_TYPE:
                await self._filter(subscription)

    async def _filter(self, subscription: Subscription) -> None:
        timeout_ms = self._instance.options.api_timeout_ms
        body = CheckClientBody(
            client_id=self._instance.client_id, group=self._group, subscription_data=subscription_data(subscription)
        )
        try:
            route = await self._instance.route(subscription.topic, timeout_ms=timeout_ms)
            broker = next(iter(route.brokers.values()), None)
            if broker is None:
                return
            connection = await self._instance.connection(broker.broker_name, timeout_ms=timeout_ms)
            response = await connection.channel.request(
                RequestCode.CHECK_CLIENT_CONFIG, None, encode_body(body), timeout_ms=timeout_ms
            )
        except PocketMQError as error:
            self._instance.log.info("filter_not_checked", topic=subscription.topic, error=str(error))
            return
        if response.code != ResponseCode.SUCCESS:
            raise SubscriptionIllegal(
                "filter refused",
                why=f"{connection.address} answered {response.code} {response.remark}",
                hint="for SQL92 the broker needs broker.enable_property_filter",
            )

    def conflict(self, text: str) -> None:
        """Log a broker's report of differing subscriptions; empty: there are none."""
        if text and text != self._logged:
            self._instance.log.error(
                "subscriptions_differ",
                group=self._group,
                client_id=self._instance.client_id,
                difference=text,
                consequence="the broker keeps one of them for all members, so that messages are lost to the group",
                hint="give every member of a group the same topics and filters, or use two groups",
            )
        self._logged = text
