package org.apache.spark.sql.headrace

import scala.collection.mutable

/**
 * Keys that wait for attention while rows come in, in real time. The watermark moves once for each checkpoint, by a whole interval, and thousands of
 * windows may end in it: if they all had their turn before the next row, that row would wait for seconds. So they get a part of the time in which
 * no row is there, a little of the rest, so that a job at its limit gets on with them too, and what is left when the batch ends.
 */
final class Backlog {
  private val queue = mutable.Queue.empty[Iterator[Due]]
  private var began = System.nanoTime()
  private var ended = began
  private var credit = 0L

  def add(more: Iterator[Due]): Unit = { queue += more; credit = 0L }

  def isEmpty: Boolean = {
    while (queue.nonEmpty && !queue.head.hasNext) queue.dequeue()
    queue.isEmpty
  }

  def next(): Due = queue.head.next()

  /** A row is there. */
  def onRow(): Unit = {
    val now = System.nanoTime()
    val idle = math.max(0L, now - ended - Backlog.GapNanos)
    credit = math.min(credit + idle / Backlog.IdleShare + (now - began) / Backlog.BusyShare, Backlog.MostNanos)
    began = now
    ended = now
  }

  /** Attends to keys for as long as the credit lasts. */
  def spend(attend: Due => Unit): Unit = {
    var before = System.nanoTime()
    while (credit > 0 && !isEmpty) {
      attend(next())
      ended = System.nanoTime()
      credit -= ended - before
      before = ended
    }
  }
}

object Backlog {
  /** Rows that stand in line follow each other as quickly: no time of this length is idle. */
  private val GapNanos = 1000L * 1000
  /** One part in so many of the idle time, and of all time. */
  private val IdleShare = 4
  private val BusyShare = 20
  /** Between two rows, at most. */
  private val MostNanos = 5L * 1000 * 1000
}
