"""Delayed messages: sends that wait in the log until their time, then become ordinary messages.

    delay_plan       a send with a delay becomes a record of SCHEDULE_TOPIC_XXXX or of the timer topic
    level_queue      one of RocketMQ's 18 levels: which of its messages are due
    timer_wheel, timer_queue   any time up to three days ahead, in bounded memory
    delivery         due records become messages of their real topic, appended in groups
    delay_offsets    how far each level has been delivered, across restarts
    delay_service    starts, wakes and stops these
    rocketmq_timers  takes over the timers of a RocketMQ 5 store, and keeps ours readable to RocketMQ

Consumers' retries arrive through ``send.send_back``; the append itself belongs to ``store``.
"""
