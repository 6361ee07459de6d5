"""A group's retry policy as clients are told it."""

import pytest

from pocketmq.broker.grpc.settings import CUSTOM_MS, retry_policy_of
from pocketmq.remoting.grpc.messages import CustomizedBackoff, Duration, ExponentialBackoff, RetryPolicy
from pocketmq.remoting.protocol.group import GroupRetryPolicy, SubscriptionGroupConfigBody

CUSTOM = RetryPolicy(
    max_attempts=17, customized_backoff=CustomizedBackoff(next=[Duration.of_ms(each) for each in CUSTOM_MS])
)


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (None, CUSTOM),
        (GroupRetryPolicy(), CUSTOM),
        (
            GroupRetryPolicy(customized_retry_policy={"next": [100, 2_000]}),
            RetryPolicy(
                max_attempts=17,
                customized_backoff=CustomizedBackoff(next=[Duration.of_ms(100), Duration.of_ms(2_000)]),
            ),
        ),
        (
            GroupRetryPolicy(type="EXPONENTIAL"),
            RetryPolicy(
                max_attempts=17,
                exponential_backoff=ExponentialBackoff(
                    initial=Duration.of_ms(5_000), max=Duration.of_ms(7_200_000), multiplier=2.0
                ),
            ),
        ),
        (
            GroupRetryPolicy(
                type="EXPONENTIAL", exponential_retry_policy={"initial": 10, "max": 1_000, "multiplier": 3}
            ),
            RetryPolicy(
                max_attempts=17,
                exponential_backoff=ExponentialBackoff(
                    initial=Duration.of_ms(10), max=Duration.of_ms(1_000), multiplier=3.0
                ),
            ),
        ),
    ],
)
def test_a_group_s_policy_is_told(own: GroupRetryPolicy | None, told: RetryPolicy) -> None:
    group = SubscriptionGroupConfigBody(group_name="g", group_retry_policy=own)
    assert retry_policy_of(group) == told


def test_a_group_that_nobody_has_made_has_rocketmq_s() -> None:
    assert retry_policy_of(None) == CUSTOM
