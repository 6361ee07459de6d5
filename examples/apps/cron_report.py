"""A script for cron: reads the orders since its last run, sends a report, ends. Plain threads, no asyncio.

    */10 * * * *  python cron_report.py

The group's offsets are the memory between runs. They are committed after the report is stored: a run that dies in
between reports its orders again.
"""

import os

import msgspec

from pocketmq.client import BodyNotDecoded, Message
from pocketmq.client.blocking import Producer, PullConsumer

NAMESRV = os.environ.get("POCKETMQ_NAMESRV", "127.0.0.1:9876")


class Order(msgspec.Struct):
    """One order of the topic ShopOrders."""

    number: int
    cents: int


class Report(msgspec.Struct):
    """What one run has found."""

    orders: int = 0
    cents: int = 0
    unreadable: int = 0


def main() -> None:
    """Read to the end of each queue, send the report, commit."""
    report = Report()
    with PullConsumer("shop-report", NAMESRV) as consumer, Producer("shop-report", NAMESRV) as producer:
        for message in consumer.stream("ShopOrders", stop_at_end=True):
            try:
                order = message.decode(Order)
            except BodyNotDecoded as error:
                print(error)
                report.unreadable += 1
                continue
            report.orders += 1
            report.cents += order.cents
        if report.orders or report.unreadable:
            producer.send(Message.of("ShopReports", report))
        consumer.commit()
    print(f"{report.orders} orders, {report.cents} cents, {report.unreadable} unreadable")


if __name__ == "__main__":
    main()
