package org.apache.spark.sql.headrace

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.streaming._
import org.apache.spark.sql.types.StructType

/** Rows on their way in: the bytes of their key and a bundle of them ([[Bundles]]). */
case class Incoming(key: Array[Byte], row: Array[Byte])

/** A row on its way out: where it goes, the row as it came, the columns that the stages added (results only), and why it left. */
case class Outgoing(route: Int, row: Array[Byte], result: Array[Byte], reason: String)

/** Where the operator finds what it needs to know of a row. */
case class RowLayout(width: Int, route: Int, time: Int, partition: Int, offset: Int, timestamp: Int)

/**
 * Consecutive steps on one key, fused: one shuffle, one state store, one pass.
 *
 * - Rows of a key are taken in log order (partition, offset) within a batch, so a key that lives in one partition gets the same
 *   results in any mode and any batching.
 * - A row that arrives with a side route (a payload that did not parse, a time too far ahead) passes through untouched.
 * - A control row ticks the clock: every key that waits for the time is attended to.
 * - Each other row goes through the stages in order until one of them sends it elsewhere. A stage that fails on a row sends that row to the
 *   dead letters; it never stops the partition. What the stages before it were to remember of the row they do not.
 * - In real time Spark takes the expired timers right after the first row of a batch. What is to be done then waits in a backlog, so that rows
 *   are not kept waiting.
 */
final class KeyedOperator(
    stages: Array[Stage], timerSlots: Array[Int], layout: RowLayout, resultSchema: StructType, realtime: Boolean, outOfOrderMs: Option[Long])
    extends StatefulProcessor[Array[Byte], Incoming, Outgoing] {

  @transient private var event: Event = _
  @transient private var results: GenericInternalRow = _
  @transient private var toUnsafe: UnsafeProjection = _
  @transient private var clock: Clock = _
  @transient private var agenda: Agenda = _
  @transient private var out: Outgoings = _
  @transient private var backlog: Backlog = _
  @transient private var rowsCome: Boolean = _
  @transient private var comesBack: Boolean = _
  /** The latest event of this task, in this batch. */
  @transient private var latest: Long = _
  /** In the first batch of all no key has state before its rows come, which in batches they do once. To find nothing takes RocksDB long. */
  @transient private lazy val firstBatch = !realtime && getHandle.getQueryInfo().getBatchId == 0L

  require(stages.length <= Timers.Slots, s"an operator fuses at most ${Timers.Slots} stages")

  private val taggedTimers = !stages.exists(_.exactTimers)

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    event = new Event(resultSchema.length)
    event.row = new UnsafeRow(layout.width)
    results = new GenericInternalRow(event.results)
    toUnsafe = UnsafeProjection.create(resultSchema)
    clock = if (stages.exists(_.usesClock)) Clock.open(getHandle) else null
    agenda = Agenda.open(getHandle)
    out = new Outgoings(clock)
    stages.zip(timerSlots).foreach { case (stage, slot) => stage.open(getHandle, new Timers(getHandle, slot, agenda)) }
    backlog = new Backlog
    rowsCome = false
    comesBack = false
    latest = KeyedOperator.NoWatermark
  }

  override def handleInputRows(key: Array[Byte], rows: Iterator[Incoming], timers: TimerValues): Iterator[Outgoing] = {
    val watermark = watermarkOf(timers)
    val ordered = inLogOrder(rows)
    if (realtime) {
      if (!rowsCome) { rowsCome = true; comeBackAt(KeyedOperator.AfterFirstRow) }
      backlog.onRow()
    }
    if (ordered.exists(isData)) {
      turnTo(key, watermark)
      stages.foreach(_.begin(unknown = firstBatch))
      ordered.foreach(row => if (isData(row)) process(row, watermark) else out.add(passThrough(row)))
      stages.foreach(_.finish(watermark, out))
      val next = soon(watermark)
      stages.foreach(_.end(next))
    } else ordered.foreach { row =>
      if (view(row).getInt(layout.route) != Routes.Control) out.add(passThrough(row))
      else if (clock != null) tick(view(row).getLong(layout.timestamp), watermark)
    }
    if (!realtime && !comesBack && !agenda.isSaved) { comesBack = true; comeBackAt(KeyedOperator.AtEnd) }
    if (backlog.isEmpty) out.take() else out.take() ++ worked(watermark)
  }

  override def handleExpiredTimer(key: Array[Byte], timers: TimerValues, expired: ExpiredTimerInfo): Iterator[Outgoing] = {
    val watermark = watermarkOf(timers)
    val time = expired.getExpiryTimeInMs()
    if (time == KeyedOperator.AfterFirstRow) { comeBackAt(KeyedOperator.AtEnd); Iterator.empty }
    else {
      if (time == KeyedOperator.AtEnd) rowsCome = false
      else backlog.add(if (java.util.Arrays.equals(key, Agenda.Key)) agenda.waiting(time) else Iterator.single(Due(key, time)))
      if (rowsCome) Iterator.empty else everything(watermark)
    }
  }

  /**
   * Spark looks for timers when all rows of a batch are done, from the first time on: one that is before all others says so. In real time it
   * looks after every row too, but only after the first of them from the first time on.
   */
  private def comeBackAt(time: Long): Unit = ForKey(Agenda.Key) { getHandle.registerTimer(time) }

  private def worked(watermark: Long): Iterator[Outgoing] = { backlog.spend(attend(_, watermark)); out.take() }

  /** Leaves nothing in the backlog and no note unsaved. */
  private def everything(watermark: Long): Iterator[Outgoing] =
    allDue(watermark) ++ { backlog.add(agenda.unsavedUntil(watermark)); allDue(watermark) } ++ { agenda.save(); Iterator.empty }

  private def allDue(watermark: Long): Iterator[Outgoing] =
    Iterator.continually(backlog).takeWhile(!_.isEmpty).flatMap { waiting => attend(waiting.next(), watermark); out.take() }

  private def attend(due: Due, watermark: Long): Unit = ForKey(due.key) {
    turnTo(due.key, watermark)
    if (taggedTimers) expire(stages(timerSlots.indexOf(Timers.slotOf(due.time))), watermark) else stages.foreach(expire(_, watermark))
  }

  private def expire(stage: Stage, watermark: Long): Unit = {
    stage.begin(unknown = false)
    stage.expire(watermark, out)
    stage.end(watermark)
  }

  override def close(): Unit =
    if (backlog != null && !(backlog.isEmpty && agenda.isSaved) && !TaskContext.get().isInterrupted())
      throw new IllegalStateException("keys that are due were not attended to")

  /** Spark says zero while there is no watermark: events from before 1970 are not late then. */
  private def watermarkOf(timers: TimerValues): Long = {
    val watermark = timers.getCurrentWatermarkInMs()
    if (watermark == 0L) KeyedOperator.NoWatermark else watermark
  }

  /**
   * What the watermark will be at least when more rows of this key come. In batches all rows of a key come at once, and after them Spark moves the
   * watermark up to the latest event of the batch less `outOfOrderMs`, unless claims move it; but not to a time before 1970.
   */
  private def soon(watermark: Long): Long = if (realtime || outOfOrderMs.isEmpty) watermark else {
    val next = latest - outOfOrderMs.get
    if (next > 0L) math.max(next, watermark) else watermark
  }

  private def turnTo(key: Array[Byte], watermark: Long): Unit = {
    out.turnTo(key)
    agenda.turnTo(key, watermark)
    stages.foreach(_.turnTo(key))
  }

  private def tick(now: Long, watermark: Long): Unit = clock.due(now).foreach { key =>
    ForKey(key) {
      turnTo(key, watermark)
      stages.filter(_.usesClock).foreach { stage =>
        stage.begin(unknown = false)
        stage.tick(now, watermark, out)
        stage.end(watermark)
      }
    }
  }

  private def process(bytes: Array[Byte], watermark: Long): Unit = {
    event.row.pointTo(bytes, bytes.length)
    event.time = event.row.getLong(layout.time)
    latest = math.max(latest, event.time)
    event.arrived = event.row.getLong(layout.timestamp)
    event.route = Routes.Result
    event.reason = null
    var passed = 0
    try {
      while (passed < stages.length && event.route == Routes.Result) {
        stages(passed).process(event, watermark, out)
        if (event.route == Routes.Result) passed += 1
      }
    } catch {
      case problem: ArithmeticException => event.leave(Routes.DeadLetter, Reasons.failed(problem))
      case failure: RowFailure => event.leave(Routes.DeadLetter, Reasons.failed(failure.getCause))
    }
    if (event.route != Routes.Absorbed) {
      // The projection writes into one buffer, and `getBytes` may hand out that buffer itself: hence the copy.
      val result = if (event.route == Routes.Result) toUnsafe(results).copy().getBytes else null
      out.add(Outgoing(event.route, bytes, result, event.reason))
    }
    if (event.route != Routes.DeadLetter) keep(passed)
  }

  private def keep(passed: Int): Unit = {
    var i = 0
    while (i < passed) { stages(i).keep(event); i += 1 }
  }

  private def view(row: Array[Byte]): UnsafeRow = { event.row.pointTo(row, row.length); event.row }

  private def isData(row: Array[Byte]): Boolean = view(row).getInt(layout.route) == Routes.Result

  private def passThrough(row: Array[Byte]): Outgoing = Outgoing(view(row).getInt(layout.route), row, null, null)

  private def inLogOrder(bundles: Iterator[Incoming]): ArrayBuffer[Array[Byte]] = {
    val buffer = new ArrayBuffer[Array[Byte]]
    var sorted = true
    var lastPartition = Int.MinValue
    var lastOffset = Long.MinValue
    bundles.foreach { in =>
      Bundles.foreachRow(in.row) { bytes =>
        val row = view(bytes)
        val partition = row.getInt(layout.partition)
        val offset = row.getLong(layout.offset)
        if (partition < lastPartition || (partition == lastPartition && offset < lastOffset)) sorted = false
        lastPartition = partition
        lastOffset = offset
        buffer += bytes
      }
    }
    if (!sorted) buffer.sortInPlaceBy { bytes =>
      val row = view(bytes)
      (row.getInt(layout.partition), row.getLong(layout.offset))
    }
    buffer
  }
}

object KeyedOperator {
  /** So far back that no event is behind it, and arithmetic on it does not overflow. */
  val NoWatermark: Long = Long.MinValue / 4

  /** Times before all others. */
  private val AtEnd = Long.MinValue
  private val AfterFirstRow = Long.MinValue + 1
}
