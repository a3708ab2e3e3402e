package org.apache.spark.sql.headrace

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.{AtomicLong, AtomicReference}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.ObjectMapper

import org.apache.kafka.common.TopicPartition

/**
 * What the source of one query lets in, on the driver: how many rows a batch may have, how many a second, and how far the batch
 * that runs now will have read. The last is for the sink, which commits it as the position of the query's consumer group.
 */
final class Intake {
  private val maxRows = new AtomicLong(Long.MaxValue)
  private val planned = new AtomicReference[Map[TopicPartition, Long]](Map.empty)
  private var rate = 0.0
  private var tokens = 0.0
  private var filled = 0L

  /** Rows a batch, at most. May be changed between any two batches. */
  def setMaxRows(rows: Long): Unit = maxRows.set(math.max(1L, rows))

  /** Rows a second, at most; 0 for no limit. */
  def setMaxRate(perSecond: Double): Unit = synchronized { rate = perSecond; tokens = 0; filled = System.nanoTime() }

  /** How many rows the next batch may have. With a rate, waits until a slice of a second's worth may come. */
  def admit(): Long = math.min(maxRows.get, tokensNow())

  /** So many rows were let in. More than were allowed (each partition gives at least one) are paid off by a longer wait. */
  def admitted(rows: Long): Unit = synchronized { tokens -= rows }

  def plan(end: Map[TopicPartition, Long]): Unit = planned.set(end)
  def plannedEnd: Map[TopicPartition, Long] = planned.get

  private def tokensNow(): Long = {
    var now = fill()
    // Waiting here and not giving 0: a run that ends at the end of its input would take that for the end.
    while (now < 1) { Thread.sleep(Intake.SliceMillis); now = fill() }
    now
  }

  private def fill(): Long = synchronized {
    if (rate <= 0) Long.MaxValue
    else {
      val now = System.nanoTime()
      // What was not used while nothing came in is kept for a second at most, so that a burst is one too.
      tokens = math.min(math.max(rate, 1.0), tokens + rate * (now - filled) / 1e9)
      filled = now
      // The first whole slice: batches of single rows would be all overhead.
      if (tokens < math.min(rate * Intake.SliceMillis / 1e3, 1000) || tokens < 1) 0 else tokens.toLong
    }
  }
}

object Intake {
  private val SliceMillis = 50L
  private val known = new ConcurrentHashMap[String, Intake]()
  private val json = new ObjectMapper

  def of(reader: String): Intake = known.computeIfAbsent(reader, _ => new Intake)
  def forget(reader: String): Unit = known.remove(reader)

  /** Kafka's offsets as Spark's Kafka source writes them: {"topic": {"0": 17}}. */
  def positions(offset: String): Map[TopicPartition, Long] =
    json.readTree(offset).properties().asScala.flatMap { topic =>
      topic.getValue.properties().asScala.map(p => new TopicPartition(topic.getKey, p.getKey.toInt) -> p.getValue.asLong)
    }.toMap

  def rows(start: Map[TopicPartition, Long], end: Map[TopicPartition, Long]): Long =
    end.map { case (partition, offset) => math.max(0L, offset - start.getOrElse(partition, 0L)) }.sum
}
