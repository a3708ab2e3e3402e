package org.apache.spark.sql.headrace

import scala.collection.mutable.ArrayBuffer

/** What leaves the operator while it works on a key: the rows, and the wish to be called when the clock has come so far. */
final class Outgoings(clock: Clock) {
  private val rows = new ArrayBuffer[Outgoing]
  private var current: Array[Byte] = _

  def turnTo(key: Array[Byte]): Unit = current = key
  def add(row: Outgoing): Unit = rows += row
  /** A row that a stage made itself. */
  def result(bytes: Array[Byte]): Unit = rows += Outgoing(Routes.Result, null, bytes, null)
  /** A result that could not be computed. */
  def deadLetter(reason: String): Unit = rows += Outgoing(Routes.DeadLetter, null, null, reason)
  def noteClock(time: Long): Unit = clock.note(current, time)

  def take(): Iterator[Outgoing] = {
    val taken = rows.toArray
    rows.clear()
    taken.iterator
  }
}
