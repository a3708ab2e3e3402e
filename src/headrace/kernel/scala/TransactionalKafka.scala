package org.apache.spark.sql.headrace

import java.nio.charset.StandardCharsets.UTF_8
import java.util
import java.util.zip.CRC32

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.ObjectMapper

import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.header.internals.RecordHeaders

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.{SupportsWrite, Table, TableCapability, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.streaming.{StreamingDataWriterFactory, StreamingWrite}
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend
import org.apache.spark.sql.types._
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.unsafe.types.UTF8String

/**
 * The Kafka sink of micro-batch and replay: exactly once, unless a topic asks for less.
 *
 * Each task writes its output in one transaction, which also commits the batch id as the offset of a consumer group of its own
 * (writer, partition). Before a task writes batch b it reads that marker, and skips if b is there already: the batch was
 * committed, but Spark did not get to know. The transactional id is (writer, partition), so a task that was given up for dead is fenced.
 * A repeated batch has the same input (Spark's offset log) and the same partitioning (the checkpoint's), hence the same output.
 *
 * A topic may have another delivery. At least once: by a producer without transactions, seen by readers at once. At most once: the
 * same, but before the first record the task claims the batch, by a transaction with nothing but a marker of its own; who finds the
 * batch claimed writes nothing to such a topic.
 *
 * How far the batch has read is committed to the query's consumer group: within the tasks' transactions, each task a share of the
 * partitions, and for tasks that had no transaction by the driver when the batch is done. It is for people and tools to see the lag.
 *
 * Rows: topic string, key binary, value binary, headers array<struct<key string, value binary>>.
 */
final class TransactionalKafka extends TableProvider {
  override def inferSchema(options: CaseInsensitiveStringMap): StructType = TransactionalKafka.schema
  override def supportsExternalMetadata(): Boolean = true
  override def getTable(schema: StructType, partitioning: Array[Transform], properties: util.Map[String, String]): Table =
    new TransactionalKafkaTable
}

object TransactionalKafka {
  val schema: StructType =
    StructType.fromDDL("topic string, key binary, value binary, headers array<struct<key: string, value: binary>>")
  /** Options under this prefix go to the producer. */
  val ProducerPrefix = "kafka."
}

private final class TransactionalKafkaTable extends Table with SupportsWrite {
  override def name(): String = "headrace-transactional-kafka"
  override def schema(): StructType = TransactionalKafka.schema
  override def capabilities(): util.Set[TableCapability] =
    util.EnumSet.of(TableCapability.STREAMING_WRITE, TableCapability.ACCEPT_ANY_SCHEMA)
  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = new TransactionalKafkaWriteBuilder(info)
}

private final class TransactionalKafkaWriteBuilder(info: LogicalWriteInfo)
    extends WriteBuilder with SupportsStreamingUpdateAsAppend {
  override def build(): Write = new Write {
    override def toStreaming: StreamingWrite = {
      val options = info.options
      val producer = options.asCaseSensitiveMap().asScala.collect {
        case (name, value) if name.startsWith(TransactionalKafka.ProducerPrefix) =>
          name.stripPrefix(TransactionalKafka.ProducerPrefix) -> value
      }.toMap
      val deliveries = new ObjectMapper().readTree(options.getOrDefault("deliveries", "{}")).properties().asScala
        .map(entry => entry.getKey -> entry.getValue.asText).toMap
      new TransactionalKafkaWrite(WriterSettings(
        options.get("writer"), options.get("generation"), options.get("marker.topic"), options.get("group"), deliveries, producer))
    }
  }
}

/**
 * `writer` names the query and its checkpoint; `markerTopic` is the topic that is read, under whose partition 0 the marker is committed;
 * `group` is the consumer group that has the query's position in it. `deliveries` says how each topic is written: one that is not
 * there exactly once.
 * Batch numbers name the same input only within a `generation`: a run in real time takes back an unfinished batch of Spark's log, and
 * the next micro-batch has its number but other input.
 */
case class WriterSettings(
    writer: String, generation: String, markerTopic: String, group: String, deliveries: Map[String, String], producer: Map[String, String]) {
  /** Whether all topics are written exactly once: then no record needs to be looked at. */
  val uniform: Boolean = deliveries.values.forall(_ == Deliveries.ExactlyOnce)
  val claims: Boolean = deliveries.values.exists(_ == Deliveries.AtMostOnce)
  /** The query's topics are all in `deliveries`: if none is written exactly once there is no transaction at all. */
  val transactional: Boolean = deliveries.isEmpty || deliveries.values.exists(_ == Deliveries.ExactlyOnce)
}

object Deliveries {
  val ExactlyOnce = "exactly_once"
  val AtLeastOnce = "at_least_once"
  val AtMostOnce = "at_most_once"
}

private final class TransactionalKafkaWrite(settings: WriterSettings) extends StreamingWrite {
  private val positions = new PositionCommits(settings)
  @volatile private var shares: Seq[Map[TopicPartition, Long]] = Nil

  override def createStreamingWriterFactory(info: PhysicalWriteInfo): StreamingDataWriterFactory = {
    val planned = Intake.of(settings.writer).plannedEnd
    val end = planned.filter(_._1.topic == settings.markerTopic)
    shares = (0 until info.numPartitions).map(task => end.filter(_._1.partition % info.numPartitions == task))
    new TransactionalKafkaWriterFactory(settings, shares, TransactionalKafkaWrite.hash(planned))
  }

  // The tasks have committed. What is left is the position of those that had nothing to commit it with.
  override def commit(epochId: Long, messages: Array[WriterCommitMessage]): Unit = {
    val done = messages.collect { case Written(partition, true) => partition }.toSet
    positions.commit(shares.zipWithIndex.collect { case (share, task) if !done(task) => share }.foldLeft(Map.empty[TopicPartition, Long])(_ ++ _))
  }
  override def abort(epochId: Long, messages: Array[WriterCommitMessage]): Unit = ()
}

private object TransactionalKafkaWrite {
  /** The same for the same ends of partitions. */
  def hash(ends: Map[TopicPartition, Long]): String = {
    val sum = new CRC32
    ends.toSeq.map { case (partition, offset) => s"$partition:$offset\n" }.sorted.foreach(line => sum.update(line.getBytes(UTF_8)))
    sum.getValue.toHexString
  }
}

private final class TransactionalKafkaWriterFactory(settings: WriterSettings, shares: Seq[Map[TopicPartition, Long]], input: String)
    extends StreamingDataWriterFactory {
  override def createWriter(partitionId: Int, taskId: Long, epochId: Long): DataWriter[InternalRow] =
    new TransactionalKafkaWriter(settings, partitionId, BatchId(epochId, input), shares(partitionId))
}

/** Topics and names of headers are the same in record after record: each is decoded once, and mostly stands where it stood in the last record. */
private final class Texts {
  private val known = new util.HashMap[UTF8String, String]
  private val before = new Array[UTF8String](Texts.Places)
  private val decoded = new Array[String](Texts.Places)

  /** The text at one of the places of a record. */
  def of(place: Int, text: UTF8String): String =
    if (place >= Texts.Places) lookedUp(text)
    else {
      if (text != before(place)) { decoded(place) = lookedUp(text); before(place) = text.copy() }
      decoded(place)
    }

  private def lookedUp(text: UTF8String): String = {
    val found = known.get(text)
    if (found != null) found
    else {
      val decoded = text.toString
      if (known.size < Texts.Most) known.put(text.copy(), decoded)
      decoded
    }
  }
}

private object Texts {
  /** More than any query has of them; a topic may be computed, though. */
  val Most = 1000
  /** A topic and some headers. */
  val Places = 8
}

/** What a task tells the driver: whether its share of the position went with its transaction. */
private case class Written(partition: Int, position: Boolean) extends WriterCommitMessage

private final class TransactionalKafkaWriter(settings: WriterSettings, partition: Int, batch: BatchId, share: Map[TopicPartition, Long])
    extends DataWriter[InternalRow] {
  private val producer =
    if (settings.transactional || settings.claims) TransactionalProducers.acquire(settings, partition) else null
  private val done = producer != null && producer.hasCommitted(batch)
  private var begun = false
  private var plain: PlainProducer = _
  private val texts = new Texts
  // Before anything is written: from here on no other attempt writes to a topic with at most once.
  private val mine = settings.claims && {
    try producer.claim(batch) catch { case problem: Throwable => producer.close(); throw problem }
  }

  override def write(row: InternalRow): Unit = {
    val topic = texts.of(0, row.getUTF8String(0))
    val delivery = if (settings.uniform) Deliveries.ExactlyOnce else settings.deliveries.getOrElse(topic, Deliveries.ExactlyOnce)
    delivery match {
      case Deliveries.AtLeastOnce => unbound.send(record(topic, row), must = true)
      case Deliveries.AtMostOnce => if (mine) unbound.send(record(topic, row), must = false)
      case _ => if (!done) {
        if (!begun) { producer.begin(); begun = true }
        producer.send(record(topic, row))
      }
    }
  }

  private def unbound: PlainProducer = {
    if (plain == null) plain = TransactionalProducers.acquirePlain(settings, partition)
    plain
  }

  private def record(topic: String, row: InternalRow): ProducerRecord[Array[Byte], Array[Byte]] = {
    val headers = new RecordHeaders
    if (!row.isNullAt(3)) {
      val list = row.getArray(3)
      var i = 0
      while (i < list.numElements()) {
        val header = list.getStruct(i, 2)
        headers.add(texts.of(i + 1, header.getUTF8String(0)), if (header.isNullAt(1)) null else header.getBinary(1))
        i += 1
      }
    }
    new ProducerRecord[Array[Byte], Array[Byte]](
      topic,
      null,
      if (row.isNullAt(1)) null else row.getBinary(1),
      if (row.isNullAt(2)) null else row.getBinary(2),
      headers)
  }

  override def commit(): WriterCommitMessage = {
    // First what may be there twice, then what may not: a failure in between repeats only the former.
    if (plain != null) { plain.flush(); TransactionalProducers.release(plain); plain = null }
    if (begun) producer.commit(batch, share)
    if (producer != null) TransactionalProducers.release(producer)
    Written(partition, begun)
  }

  // A producer in an unknown state is not used again; the next one of its id aborts what this one left open.
  override def abort(): Unit = {
    if (plain != null) plain.close()
    if (producer != null) producer.close()
  }
  override def close(): Unit = ()
}
