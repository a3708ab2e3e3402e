package org.apache.spark.sql.headrace

import java.nio.charset.StandardCharsets
import java.sql.Timestamp

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.{DataFrame, Encoders, Row, SparkSession}
import org.apache.spark.sql.execution.streaming.runtime.{MemoryStream, StreamingQueryWrapper}
import org.apache.spark.sql.execution.streaming.sources.MemorySink
import org.apache.spark.sql.streaming.StreamingQuery

/** A record as Spark's Kafka source gives it. */
case class LogRecord(key: Array[Byte], value: Array[Byte], topic: String, partition: Int, offset: Long, timestamp: Timestamp)

/** Topics in memory, in place of a broker: for tests of pipelines. */
final class MemoryLog(spark: SparkSession) {
  private val stream = MemoryStream[LogRecord](Encoders.product[LogRecord], spark)
  private val waiting = new ArrayBuffer[LogRecord]

  def records(): DataFrame = stream.toDF()

  def add(topic: String, partition: Int, offset: Long, timestampMs: Long, key: Array[Byte], value: Array[Byte]): Unit =
    waiting += LogRecord(key, value, topic, partition, offset, new Timestamp(timestampMs))

  /** What was added goes in as one batch. */
  def flush(): Unit = if (waiting.nonEmpty) {
    stream.addData(waiting.toSeq)
    waiting.clear()
  }
}

object MemoryLog {
  /**
   * The records that a query has written to its memory sink, from number `from` on: topic, key, value, then the names and values of headers.
   * As one array of bytes, since Python would otherwise fetch them field by field: the number of fields, then each with its length, -1 for null.
   */
  def written(query: StreamingQuery, from: Int): Array[Byte] = {
    val sink = query.asInstanceOf[StreamingQueryWrapper].streamingQuery.sink.asInstanceOf[MemorySink]
    val out = new ByteWriter(1024)
    sink.allData.drop(from).foreach { record =>
      val headers = Option(record.getSeq[Row](3)).getOrElse(Nil)
      val fields = Seq(record.get(0), record.get(1), record.get(2)) ++ headers.flatMap(h => Seq(h.get(0), h.get(1)))
      out.putInt(fields.length)
      fields.foreach {
        case text: String => Pane.put(out, text.getBytes(StandardCharsets.UTF_8))
        case bytes => Pane.put(out, bytes.asInstanceOf[Array[Byte]])
      }
    }
    out.toBytes
  }
}
