package org.apache.spark.sql.headrace

import java.util

import scala.jdk.CollectionConverters._

import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.header.internals.RecordHeaders

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.{SupportsWrite, Table, TableCapability, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.streaming.{StreamingDataWriterFactory, StreamingWrite}
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend
import org.apache.spark.sql.types._
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * The exactly-once Kafka sink of micro-batch and replay.
 *
 * Each task writes its output in one transaction, which also commits the batch id as the offset of a consumer group of its own
 * (writer, partition). Before a task writes batch b it reads that marker, and skips if b is there already: the batch was
 * committed, but Spark did not get to know. The transactional id is (writer, partition), so a task that was given up for dead is fenced.
 * A repeated batch has the same input (Spark's offset log) and the same partitioning (the checkpoint's), hence the same output.
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
      new TransactionalKafkaWrite(WriterSettings(
        options.get("writer"), options.get("generation"), options.get("marker.topic"), producer))
    }
  }
}

/**
 * `writer` names the query and its checkpoint; `markerTopic` is a topic that exists, under whose partition 0 the marker is committed.
 * Batch numbers name the same input only within a `generation`: a run in real time takes back an unfinished batch of Spark's log, and
 * the next micro-batch has its number but other input.
 */
case class WriterSettings(writer: String, generation: String, markerTopic: String, producer: Map[String, String])

private final class TransactionalKafkaWrite(settings: WriterSettings) extends StreamingWrite {
  override def createStreamingWriterFactory(info: PhysicalWriteInfo): StreamingDataWriterFactory =
    new TransactionalKafkaWriterFactory(settings)
  // The tasks have committed; there is nothing left to do for the batch as a whole.
  override def commit(epochId: Long, messages: Array[WriterCommitMessage]): Unit = ()
  override def abort(epochId: Long, messages: Array[WriterCommitMessage]): Unit = ()
}

private final class TransactionalKafkaWriterFactory(settings: WriterSettings) extends StreamingDataWriterFactory {
  override def createWriter(partitionId: Int, taskId: Long, epochId: Long): DataWriter[InternalRow] =
    new TransactionalKafkaWriter(settings, partitionId, epochId)
}

private case object Written extends WriterCommitMessage

private final class TransactionalKafkaWriter(settings: WriterSettings, partition: Int, batch: Long)
    extends DataWriter[InternalRow] {
  private val producer = TransactionalProducers.acquire(settings, partition)
  private val done = producer.lastBatch >= batch
  private var begun = false

  override def write(row: InternalRow): Unit = if (!done) {
    if (!begun) { producer.begin(); begun = true }
    val headers = new RecordHeaders
    if (!row.isNullAt(3)) {
      val list = row.getArray(3)
      var i = 0
      while (i < list.numElements()) {
        val header = list.getStruct(i, 2)
        headers.add(header.getUTF8String(0).toString, if (header.isNullAt(1)) null else header.getBinary(1))
        i += 1
      }
    }
    producer.send(new ProducerRecord[Array[Byte], Array[Byte]](
      row.getUTF8String(0).toString,
      null,
      if (row.isNullAt(1)) null else row.getBinary(1),
      if (row.isNullAt(2)) null else row.getBinary(2),
      headers))
  }

  override def commit(): WriterCommitMessage = {
    if (begun) producer.commit(batch)
    TransactionalProducers.release(producer)
    Written
  }

  // A producer in an unknown state is not used again; the next one of its id aborts what this one left open.
  override def abort(): Unit = TransactionalProducers.discard(producer)
  override def close(): Unit = ()
}
