"""What the embedded broker is configured with, and why. Paths are relative: the broker runs inside its own folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_SEGMENT_BYTES = 128 * 1024 * 1024
_RETENTION_BYTES = 1024 * 1024 * 1024

HEAP = "512m"
"""Enough for one node with modest topics; what the broker keeps in memory is mostly the page cache, not the heap."""
GC_LOG = "logs/gc.log"
GC_LOGGING = f"-Xlog:gc:file={GC_LOG}:uptime:filecount=2,filesize=1m"
"""What is left after each collection: by that the doctor sees a heap that is too small."""
JVM_OPTIONS = (
    # Starts as quickly as the serial collector here, and its pauses stay short: the broker is in every latency figure.
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-Djava.awt.headless=true",
    "-Dlog4j2.configurationFile=log4j2.xml",
)


@dataclass(frozen=True)
class Node:
    """One node of a cluster: its number, and by number the controller ports of all of them."""

    id: int = 1
    controllers: Mapping[int, int] = field(default_factory=dict)
    cluster_id: str | None = None

    @property
    def replicas(self) -> int:
        """How often a record is kept, unless its topic says otherwise."""
        return min(3, max(1, len(self.controllers)))


def server_properties(*, port: int, controller_port: int, log_dir: str, node: Node | None = None) -> str:
    """A node's configuration: broker and controller in one, on the loopback interface only.

    >>> "listeners=PLAINTEXT://127.0.0.1:9092" in server_properties(port=9092, controller_port=9093, log_dir="data")
    True
    """
    node = node or Node()
    controllers = node.controllers or {node.id: controller_port}
    # A record that is acknowledged is on this many nodes: with three, one may die and nothing is lost or held up.
    least = max(1, node.replicas - 1)
    settings: dict[str, str | int] = {
        "process.roles": "broker,controller",
        "node.id": node.id,
        "controller.quorum.voters": ",".join(f"{id}@127.0.0.1:{p}" for id, p in sorted(controllers.items())),
        # No authentication, so nobody but this machine may reach it.
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": log_dir,
        # A pipeline names its topics; a misspelt one is an error and not a new topic.
        "auto.create.topics.enable": "false",
        "num.partitions": 4,
        # Few internal partitions, since each costs files and start-up time.
        "default.replication.factor": node.replicas,
        "offsets.topic.replication.factor": node.replicas,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": node.replicas,
        "transaction.state.log.min.isr": least,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": node.replicas,
        "share.coordinator.state.topic.min.isr": least,
        "share.coordinator.state.topic.num.partitions": 4,
        "min.insync.replicas": least,
        # A single consumer waits for nobody.
        "group.initial.rebalance.delay.ms": 0,
        # Retention by time goes by the records' own timestamps: events of last month that are replayed today would be
        # deleted as soon as they are written. So time deletes nothing, and size bounds the disk, per partition.
        "log.retention.ms": -1,
        "log.retention.bytes": _RETENTION_BYTES,
        "log.segment.bytes": _SEGMENT_BYTES,
        # Committed offsets also mark what exactly-once sinks have written; a week's pause must not forget them.
        "offsets.retention.minutes": 365 * 24 * 60,
        # A transaction whose owner died holds back its readers until it times out; by default that is seen every 10 s.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        # The default of 128 MB is a quarter of this heap.
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


# Its own shutdown hook is off: the broker still logs while the JVM shuts down.
LOG4J2 = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN" shutdownHook="disable">
  <Appenders>
    <RollingFile name="file" fileName="logs/broker.log" filePattern="logs/broker.%i.log">
      <PatternLayout pattern="%d{ISO8601} %-5p %c{1.} %m%n"/>
      <Policies>
        <SizeBasedTriggeringPolicy size="5 MB"/>
      </Policies>
      <DefaultRolloverStrategy max="3"/>
    </RollingFile>
  </Appenders>
  <Loggers>
    <Root level="info">
      <AppenderRef ref="file"/>
    </Root>
  </Loggers>
</Configuration>
"""
