"""The settings that a client gets back: its own with the server's part filled in.

Source: RocketMQ 5.3.3 ``GrpcClientSettingsManager`` and the defaults of its ``ProxyConfig``. ``metric`` must be there:
Python clients before 5.1.1 ignore settings without it.

Lives here: ``Policies``, ``merged``, ``retry_policy_of``.
"""

from dataclasses import dataclass
from typing import Final

from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.grpc.names import group_of
from pocketmq.remoting.grpc.messages import (
    CustomizedBackoff,
    Duration,
    ExponentialBackoff,
    Metric,
    Publishing,
    RetryPolicy,
    Settings,
    Subscription,
)
from pocketmq.remoting.protocol.group import SubscriptionGroupConfigBody

ATTEMPTS: Final = 3
SEND_BACKOFF_MS: Final = (10, 1_000, 2.0)
"""First wait, longest wait, factor."""
BATCH: Final = 32
POLLING_MS: Final = 20_000
RETRIES: Final = 16
"""Retries of a group without settings."""
CUSTOM_MS: Final = tuple(
    each * 1000 for each in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
EXPONENTIAL_MS: Final = (5_000, 7_200_000, 2)


@dataclass(frozen=True, slots=True)
class Policies:
    """What the server decides."""

    groups: SubscriptionGroups
    body_bytes_max: int


def merged(settings: Settings, policies: Policies) -> Settings:
    """Return a client's settings as they count from now on. Raise ``CallRefused`` for a group that is none."""
    answer = Settings(
        client_type=settings.client_type,
        access_point=settings.access_point,
        request_timeout=settings.request_timeout,
        user_agent=settings.user_agent,
        metric=Metric(on=False),
    )
    if settings.publishing is not None:
        initial, longest, factor = SEND_BACKOFF_MS
        answer.backoff_policy = RetryPolicy(
            max_attempts=ATTEMPTS,
            exponential_backoff=ExponentialBackoff(
                initial=Duration.of_ms(initial), max=Duration.of_ms(longest), multiplier=factor
            ),
        )
        answer.publishing = Publishing(
            topics=settings.publishing.topics, max_body_size=policies.body_bytes_max, validate_message_type=True
        )
    elif settings.subscription is not None:
        group = policies.groups.get(group_of(settings.subscription.group))
        answer.backoff_policy = retry_policy_of(group)
        answer.subscription = Subscription(
            group=settings.subscription.group,
            subscriptions=settings.subscription.subscriptions,
            fifo=bool(group is not None and group.consume_message_orderly),
            receive_batch_size=BATCH,
            long_polling_timeout=Duration.of_ms(POLLING_MS),
        )
    return answer


def retry_policy_of(group: SubscriptionGroupConfigBody | None) -> RetryPolicy:
    """Return when and how often a group's messages are tried again."""
    policy = RetryPolicy(max_attempts=(RETRIES if group is None else group.retry_max_times) + 1)
    own = None if group is None else group.group_retry_policy
    if own is not None and own.type == "EXPONENTIAL":
        initial, longest, factor = EXPONENTIAL_MS
        given = own.exponential_retry_policy or {}
        policy.exponential_backoff = ExponentialBackoff(
            initial=Duration.of_ms(given.get("initial", initial)),
            max=Duration.of_ms(given.get("max", longest)),
            multiplier=float(given.get("multiplier", factor)),
        )
        return policy
    waits = ((own.customized_retry_policy or {}).get("next") if own is not None else None) or CUSTOM_MS
    policy.customized_backoff = CustomizedBackoff(next=[Duration.of_ms(each) for each in waits])
    return policy
