package org.apache.spark.sql.headrace

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.streaming._
import org.apache.spark.sql.types.StructType

/** A row on its way in: the bytes of its key and of the whole row. */
case class Incoming(key: Array[Byte], row: Array[Byte])

/** A row on its way out: where it goes, the row as it came, the columns that the stages added (results only), and why it left. */
case class Outgoing(route: Int, row: Array[Byte], result: Array[Byte], reason: String)

/** Where the operator finds what it needs to know of a row. */
case class RowLayout(width: Int, route: Int, time: Int, partition: Int, offset: Int)

/**
 * Consecutive steps on one key, fused: one shuffle, one state store, one pass.
 *
 * - Rows of a key are taken in log order (partition, offset) within a batch, so a key that lives in one partition gets the same
 *   results in any mode and any batching.
 * - A row that arrives with a side route (a payload that did not parse, a time too far ahead) passes through untouched.
 * - Each other row goes through the stages in order until one of them sends it elsewhere. A stage that fails on a row sends that row to the
 *   dead letters; it never stops the partition.
 */
final class KeyedOperator(stages: Array[Stage], layout: RowLayout, resultSchema: StructType)
    extends StatefulProcessor[Array[Byte], Incoming, Outgoing] {

  @transient private var event: Event = _
  @transient private var results: GenericInternalRow = _
  @transient private var toUnsafe: UnsafeProjection = _

  require(stages.length <= Timers.Slots, s"an operator fuses at most ${Timers.Slots} stages")

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    event = new Event(resultSchema.length)
    event.row = new UnsafeRow(layout.width)
    results = new GenericInternalRow(event.results)
    toUnsafe = UnsafeProjection.create(resultSchema)
    stages.zipWithIndex.foreach { case (stage, i) => stage.open(getHandle, new Timers(getHandle, i)) }
  }

  override def handleInputRows(key: Array[Byte], rows: Iterator[Incoming], timers: TimerValues): Iterator[Outgoing] = {
    val watermark = timers.getCurrentWatermarkInMs()
    val ordered = inLogOrder(rows)
    if (!ordered.exists(isData)) ordered.iterator.map(passThrough)
    else {
      stages.foreach(_.begin())
      val out = new Array[Outgoing](ordered.length)
      var i = 0
      while (i < out.length) {
        out(i) = if (isData(ordered(i))) process(ordered(i).row, watermark) else passThrough(ordered(i))
        i += 1
      }
      stages.foreach(_.end())
      out.iterator
    }
  }

  override def handleExpiredTimer(key: Array[Byte], timers: TimerValues, expired: ExpiredTimerInfo): Iterator[Outgoing] = {
    val stage = stages(Timers.stageOf(expired.getExpiryTimeInMs()))
    stage.begin()
    stage.expire(timers.getCurrentWatermarkInMs())
    stage.end()
    Iterator.empty
  }

  private def process(bytes: Array[Byte], watermark: Long): Outgoing = {
    event.row.pointTo(bytes, bytes.length)
    event.time = event.row.getLong(layout.time)
    event.route = Routes.Result
    event.reason = null
    try {
      var i = 0
      while (i < stages.length && event.route == Routes.Result) {
        stages(i).process(event, watermark)
        i += 1
      }
    } catch {
      case problem: ArithmeticException => event.leave(Routes.DeadLetter, Reasons.failed(problem))
    }
    // The projection writes into one buffer, and `getBytes` may hand out that buffer itself: hence the copy.
    val result = if (event.route == Routes.Result) toUnsafe(results).copy().getBytes else null
    Outgoing(event.route, bytes, result, event.reason)
  }

  private def view(in: Incoming): UnsafeRow = { event.row.pointTo(in.row, in.row.length); event.row }

  private def isData(in: Incoming): Boolean = view(in).getInt(layout.route) == Routes.Result

  private def passThrough(in: Incoming): Outgoing = Outgoing(view(in).getInt(layout.route), in.row, null, null)

  private def inLogOrder(rows: Iterator[Incoming]): ArrayBuffer[Incoming] = {
    val buffer = new ArrayBuffer[Incoming]
    var sorted = true
    var lastPartition = Int.MinValue
    var lastOffset = Long.MinValue
    while (rows.hasNext) {
      val in = rows.next()
      val row = view(in)
      val partition = row.getInt(layout.partition)
      val offset = row.getLong(layout.offset)
      if (partition < lastPartition || (partition == lastPartition && offset < lastOffset)) sorted = false
      lastPartition = partition
      lastOffset = offset
      buffer += in
    }
    if (!sorted) buffer.sortInPlaceBy { in =>
      val row = view(in)
      (row.getInt(layout.partition), row.getLong(layout.offset))
    }
    buffer
  }
}
