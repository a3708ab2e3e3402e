"""What the embedded broker is configured with, and why. Paths are relative: the broker runs inside its own folder."""

from __future__ import annotations

_SEGMENT_BYTES = 128 * 1024 * 1024
_RETENTION_BYTES = 1024 * 1024 * 1024

JVM_OPTIONS = (
    # Enough for one node with modest topics; what the broker keeps in memory is mostly the page cache, not the heap.
    "-Xms256m",
    "-Xmx512m",
    # Starts as quickly as the serial collector here, and its pauses stay short: the broker is in every latency figure.
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-Djava.awt.headless=true",
    "-Dlog4j2.configurationFile=log4j2.xml",
)


def server_properties(*, port: int, controller_port: int, log_dir: str) -> str:
    """The broker's configuration: one node that is broker and controller, on the loopback interface only.

    >>> "listeners=PLAINTEXT://127.0.0.1:9092" in server_properties(port=9092, controller_port=9093, log_dir="data")
    True
    """
    settings: dict[str, str | int] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
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
        # One node: nothing can be replicated. Few internal partitions, since each costs files and start-up time.
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 4,
        "min.insync.replicas": 1,
        # A single consumer waits for nobody.
        "group.initial.rebalance.delay.ms": 0,
        # Retention by time goes by the records' own timestamps: events of last month that are replayed today would be
        # deleted as soon as they are written. So time deletes nothing, and size bounds the disk, per partition.
        "log.retention.ms": -1,
        "log.retention.bytes": _RETENTION_BYTES,
        "log.segment.bytes": _SEGMENT_BYTES,
        # Committed offsets also mark what exactly-once sinks have written; a week's pause must not forget them.
        "offsets.retention.minutes": 365 * 24 * 60,
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
