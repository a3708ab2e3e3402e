"""How far a consumer group has read: committed offsets, and the lag that any Kafka tool makes of them."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.errors import LogError
from headrace.log.answers import answer
from headrace.log.topics import Topics


class GroupPositions:
    """The positions of consumer groups at one cluster. Members are not needed: a group is a name with offsets.

    >>> GroupPositions("127.0.0.1:1", timeout=0.5).commit("clicks", "clicks", {})
    """

    def __init__(self, bootstrap: str, timeout: float = 5.0) -> None:
        self._bootstrap = bootstrap
        self._timeout = timeout
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set the position of a group in a topic: by partition, the offset of the record that it reads next."""
        if not offsets:
            return
        moved = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]

        def commit() -> object:
            request = ConsumerGroupTopicPartitions(group, moved)
            future = self._admin.alter_consumer_group_offsets([request], request_timeout=self._timeout)[group]
            return future.result(self._timeout + 5)

        try:
            answer(commit, self._timeout)
        except KafkaException as problem:
            raise LogError(
                f"the position of group `{group}` can't be committed.", why=f"Kafka says: {problem.args[0].str()}"
            ) from problem

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The position of a group in a topic, by partition; partitions without one are left out."""

        def ask() -> list[TopicPartition]:
            request = ConsumerGroupTopicPartitions(group)
            future = self._admin.list_consumer_group_offsets([request], request_timeout=self._timeout)[group]
            found: list[TopicPartition] = future.result(self._timeout + 5).topic_partitions
            return found

        try:
            found = answer(ask, self._timeout)
        except KafkaException as problem:
            raise LogError(
                f"the position of group `{group}` can't be read.", why=f"Kafka says: {problem.args[0].str()}"
            ) from problem
        return {p.partition: p.offset for p in found if p.topic == topic and p.offset >= 0}

    def lag(self, group: str, topic: str) -> int:
        """Records of the topic that the group has not read yet."""
        read = self.committed(group, topic)
        ends = Topics(self._bootstrap, timeout=self._timeout).end_offsets(topic)
        return sum(max(0, end - read.get(partition, 0)) for partition, end in ends.items())
