package org.apache.spark.sql.headrace

import java.util
import java.util.Optional

import org.apache.kafka.common.TopicPartition

import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory, Scan, ScanBuilder}
import org.apache.spark.sql.connector.read.streaming._
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * Spark's own Kafka source, with an [[Intake]] that says before each batch how much to read: Spark itself fixes that when a query
 * starts. Offsets are those of Spark's source, so a checkpoint goes from one to the other and back.
 */
final class PacedKafka extends TableProvider {
  // Its class is private to the connector.
  private val kafka =
    Class.forName("org.apache.spark.sql.kafka010.KafkaSourceProvider").getConstructor().newInstance().asInstanceOf[TableProvider]

  override def inferSchema(options: CaseInsensitiveStringMap): StructType = kafka.inferSchema(options)
  override def getTable(schema: StructType, partitioning: Array[Transform], properties: util.Map[String, String]): Table =
    new PacedKafkaTable(kafka.getTable(schema, partitioning, properties).asInstanceOf[Table with SupportsRead])
}

private final class PacedKafkaTable(kafka: Table with SupportsRead) extends Table with SupportsRead {
  override def name(): String = "headrace-paced-kafka"
  override def schema(): StructType = StructType(kafka.columns().map(c =>
    org.apache.spark.sql.types.StructField(c.name, c.dataType, c.nullable)))
  override def capabilities(): util.Set[TableCapability] = util.EnumSet.of(TableCapability.MICRO_BATCH_READ)
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    val builder = kafka.newScanBuilder(options)
    () => new PacedKafkaScan(builder.build(), Intake.of(options.get("reader")))
  }
}

private final class PacedKafkaScan(kafka: Scan, intake: Intake) extends Scan {
  override def readSchema(): StructType = kafka.readSchema()
  override def description(): String = kafka.description()
  override def supportedCustomMetrics(): Array[CustomMetric] = kafka.supportedCustomMetrics()
  override def reportDriverMetrics(): Array[CustomTaskMetric] = kafka.reportDriverMetrics()
  override def columnarSupportMode(): Scan.ColumnarSupportMode = kafka.columnarSupportMode()
  override def toMicroBatchStream(checkpointLocation: String): MicroBatchStream =
    new PacedKafkaStream(kafka.toMicroBatchStream(checkpointLocation), intake)
}

private final class PacedKafkaStream(kafka: MicroBatchStream, intake: Intake)
    extends MicroBatchStream with SupportsTriggerAvailableNow with ReportsSourceMetrics {
  private val admission = kafka.asInstanceOf[SupportsTriggerAvailableNow]

  override def latestOffset(start: Offset, limit: ReadLimit): Offset = {
    val rows = intake.admit()
    val end = admission.latestOffset(start, if (rows == Long.MaxValue) ReadLimit.allAvailable() else ReadLimit.maxRows(rows))
    if (start != null && end != null) intake.admitted(Intake.rows(Intake.positions(start.json()), Intake.positions(end.json())))
    end
  }

  /**
   * In the order of the log. Spark's own order comes out of a map and changes when a batch is repeated from the offset log: task 0
   * would then have the records of another partition than before, and the sink's marker of task 0 would speak of other output.
   */
  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] = {
    intake.plan(Intake.positions(end.json()))
    kafka.planInputPartitions(start, end).sortBy(placeOf)
  }

  // The classes are private to the connector; a case class can be taken apart all the same.
  private def placeOf(partition: InputPartition): (String, Int, Long) = {
    val range = partition.asInstanceOf[Product].productElement(0).asInstanceOf[Product]
    val of = range.productElement(0).asInstanceOf[TopicPartition]
    (of.topic, of.partition, range.productElement(1).asInstanceOf[Long])
  }

  // The limit that Spark hands back is not used: `latestOffset` asks the intake.
  override def getDefaultReadLimit: ReadLimit = admission.getDefaultReadLimit
  override def prepareForTriggerAvailableNow(): Unit = admission.prepareForTriggerAvailableNow()
  override def reportLatestOffset(): Offset = admission.reportLatestOffset()
  override def latestOffset(): Offset = kafka.latestOffset()
  override def initialOffset(): Offset = kafka.initialOffset()
  override def deserializeOffset(json: String): Offset = kafka.deserializeOffset(json)
  override def createReaderFactory(): PartitionReaderFactory = kafka.createReaderFactory()
  override def commit(end: Offset): Unit = kafka.commit(end)
  override def stop(): Unit = kafka.stop()
  override def metrics(latest: Optional[Offset]): util.Map[String, String] = kafka.asInstanceOf[ReportsSourceMetrics].metrics(latest)
  override def toString: String = kafka.toString
}
