"""Consumer groups that are in trouble beside a job, for the doctor to find."""

from __future__ import annotations

import threading

from confluent_kafka import Consumer, TopicPartition

from headrace.log.consumer import consumer_config


def three_members(bootstrap: str, topic: str, stopping: threading.Event) -> None:
    """Three members of a group for two partitions."""
    members = [Consumer(consumer_config(bootstrap, f"{topic}-readers")) for _ in range(3)]
    for member in members:
        member.subscribe([topic])
    while not stopping.is_set():
        for member in members:
            member.poll(0.05)
    for member in members:
        member.close()


def restless(bootstrap: str, topic: str, stopping: threading.Event) -> None:
    """A member that stays, and others that come and go: the group shares out its partitions again and again."""
    stays = Consumer(consumer_config(bootstrap, f"{topic}-readers"))
    stays.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    stays.subscribe([topic])
    while not stopping.is_set():
        for _ in range(5):
            stays.poll(0.1)
        comes = Consumer(consumer_config(bootstrap, f"{topic}-readers"))
        comes.subscribe([topic])
        for _ in range(25):
            comes.poll(0.1)  # meanwhile the first one does not answer
        comes.close()
    stays.close()


READERS = {"three": three_members, "restless": restless}
