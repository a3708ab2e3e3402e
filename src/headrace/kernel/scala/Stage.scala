package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.streaming.StatefulProcessorHandle

/** One row on its way through the stages of an operator. Reused from row to row. */
final class Event(resultWidth: Int) {
  var row: UnsafeRow = _
  /** Event time in milliseconds. */
  var time: Long = 0L
  /** When the record came into the log, in milliseconds. */
  var arrived: Long = 0L
  var route: Int = Routes.Result
  var reason: String = _
  /** One slot for each result column of the operator; a stage fills its own. */
  val results: Array[Any] = new Array[Any](resultWidth)

  def leave(newRoute: Int, why: String): Unit = { route = newRoute; reason = why }
}

/** An expression of the user's failed on a row: the row is a dead letter. */
final class RowFailure(problem: Throwable) extends RuntimeException(problem)

/**
 * One fused step of a keyed operator. Spark calls the operator key by key; the operator tells each stage when a key
 * begins and ends, hands it the rows in log order, and lets it expire what a timer has made obsolete.
 *
 * A stage keeps its state between `begin` and `end` in memory and writes it back in `end`, so that a key with many rows in
 * one batch costs one read and one write.
 */
trait Stage extends Serializable {
  /** Declares the state variables. Runs on the driver too, where the handle only collects their schemas. */
  def open(handle: StatefulProcessorHandle, timers: Timers): Unit

  /** The rows, timers or ticks that follow are of this key. */
  def turnTo(key: Array[Byte]): Unit = ()

  /** The rows of the current key begin. `unknown` if the key can't have any state: there is then no need to look for it. */
  def begin(unknown: Boolean): Unit

  /**
   * What the stage does with a row: fill its results, or `leave` for a side route. A stage may also give rows of its own. What it has to remember
   * of a row that it lets pass waits for `keep`.
   */
  def process(event: Event, watermark: Long, out: Outgoings): Unit

  /**
   * The row that the stage has just let pass is not a dead letter of a later stage either: remember it. A row that fails leaves no trace in any
   * stage, so that it is new when it comes again, repaired.
   */
  def keep(event: Event): Unit = ()

  /** The rows of the current key in this batch have all been processed. */
  def finish(watermark: Long, out: Outgoings): Unit = ()

  /** What the stage does with a timer of its own: drop what no event that is still on time can need. */
  def expire(watermark: Long, out: Outgoings): Unit

  /** The clock has reached the time that the stage noted for the current key. */
  def tick(now: Long, watermark: Long, out: Outgoings): Unit = ()

  /**
   * The rows of the current key end: write back what changed. No row comes before the watermark is at `soon` or behind it: what only rows
   * before that could need is not kept.
   */
  def end(soon: Long): Unit

  /** Whether its timers must fire at their very millisecond; otherwise they may be rounded up, which tells whose they are. */
  def exactTimers: Boolean = false
  def usesClock: Boolean = false
}

/**
 * The timers of one stage. All stages of an operator share one agenda; a time is rounded up to the next multiple of `Timers.GridMs` milliseconds,
 * so that many keys share it, plus the stage's slot, so that it tells whose it is and no other stage's state is read for it.
 */
final class Timers(handle: StatefulProcessorHandle, slot: Int, agenda: Agenda) {
  /** Registers a timer at or soon after the time; gives the time that was registered. */
  def register(time: Long): Long = {
    val due = (Math.floorDiv(math.max(time, Timers.Earliest), Timers.GridMs) + 1) * Timers.GridMs + slot
    agenda.note(due)
    due
  }

  /** At that very time. `shared` if many keys are likely to want the same one. */
  def registerExactly(time: Long, shared: Boolean): Unit = {
    val due = math.max(time, Timers.Earliest)
    if (shared) agenda.note(due) else handle.registerTimer(due)
  }
}

object Timers {
  val Slots = 16L
  /** While there is no watermark Spark takes it for zero: a timer until then would be gone before its time has come. */
  private val Earliest = 1L
  /** A multiple of it. What is cleared away a second later costs nothing; a time for each key costs a tenth of a replay. */
  private val GridMs = 64 * Slots
  def slotOf(expiry: Long): Int = Math.floorMod(expiry, Slots).toInt
}
