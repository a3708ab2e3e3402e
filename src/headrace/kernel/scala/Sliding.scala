package org.apache.spark.sql.headrace

import java.nio.ByteBuffer

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.streaming.StatefulProcessorHandle
import org.apache.spark.sql.types.StructType

/** Spark's own aggregates as a measure of the tree of events: any function that can be merged. */
final class AggregateMeasure(evaluator: AggregateEvaluator) extends Measure {
  private var live: InternalRow = _

  override def reset(): Unit = live = null
  override def add(row: UnsafeRow): Unit = evaluator.update(buffer, row)
  override def write(out: ByteWriter): Unit = {
    val bytes = evaluator.store(buffer)
    Pane.put(out, bytes)
    live = evaluator.load(bytes)
  }
  override def mergeFrom(in: ByteBuffer): Unit = evaluator.merge(buffer, Pane.get(in))

  def buffer: InternalRow = {
    if (live == null) live = evaluator.empty()
    live
  }
}

/**
 * Event-triggered windows: each event gets the aggregates over (t - size, t] of what has arrived of its key. As `Rolling`, with any of Spark's
 * aggregates; `stored` are the columns that they need. The result is computed before the event goes in: one on which an aggregate fails changes
 * nothing.
 */
final class Sliding(step: WindowStep, sizeMs: Long, schema: StructType, stored: Array[Int]) extends Stage {
  import step._

  @transient private var timers: Timers = _
  @transient private var evaluator: AggregateEvaluator = _
  @transient private var measure: AggregateMeasure = _
  @transient private var wanted: Array[Measure] = _
  @transient private var events: TimeTree = _
  @transient private var result: ResultRow = _
  /** What is kept of the event that passed last. */
  @transient private var row: UnsafeRow = _
  @transient private lazy val storedRow =
    UnsafeProjection.create(stored.map(i => BoundReference(i, schema(i).dataType, nullable = true)).toIndexedSeq)

  override def open(handle: StatefulProcessorHandle, own: Timers): Unit = {
    timers = own
    evaluator = aggregates.evaluator()
    measure = new AggregateMeasure(evaluator)
    wanted = Array(measure)
    events = new TimeTree(stored.length, wanted, MapNodeStore.open(handle, name))
    result = new ResultRow(keySchema, resultSchema, evaluator)
  }

  override def turnTo(key: Array[Byte]): Unit = result.turnTo(key)
  override def begin(unknown: Boolean): Unit = events.load(unknown)

  override def process(event: Event, watermark: Long, out: Outgoings): Unit =
    if (event.time < watermark) event.leave(Routes.Late, Reasons.late(event.time, watermark))
    else {
      row = storedRow(event.row)
      events.prune(watermark - sizeMs)
      events.query(event.time - sizeMs, event.time, row, wanted)
      result.fill(event.time - sizeMs, event.time, measure.buffer)
      result.pane(Some(event.time), 0L, Windows.OnTime, last = true, Windows.Inserted, event.arrived)
      result.row.values.copyToArray(event.results)
    }

  override def keep(event: Event): Unit = events.insert(event.time, row)

  override def expire(watermark: Long, out: Outgoings): Unit =
    if (events.due != TimeTree.NoTimer && events.due <= watermark) {
      events.prune(watermark - sizeMs)
      events.clearDue()
    }

  override def end(soon: Long): Unit = {
    events.prune(soon - sizeMs)
    if (!events.isEmpty) events.schedule(timers, events.last + sizeMs, soon, sizeMs)
    events.save()
  }
}
