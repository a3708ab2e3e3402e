package org.apache.spark.sql.headrace

import scala.collection.mutable

/**
 * Keys that wait for attention while rows come in, in real time. The watermark moves once for each checkpoint, by a whole interval, and thousands of
 * windows may end in it: if they all had their turn before the next row, that row would wait for seconds. So they get a share of the time,
 * and what is left when the batch ends has its turn then.
 */
final class Backlog {
  private val queue = mutable.Queue.empty[Iterator[Due]]
  private var lastRow = System.nanoTime()
  private var credit = 0L

  def add(more: Iterator[Due]): Unit = queue += more

  def isEmpty: Boolean = {
    while (queue.nonEmpty && !queue.head.hasNext) queue.dequeue()
    queue.isEmpty
  }

  def next(): Due = queue.head.next()

  /** A row is there: a part of the time since the one before may be spent. */
  def onRow(): Unit = {
    val now = System.nanoTime()
    credit = math.min(credit + (now - lastRow) / Backlog.Share, Backlog.MostNanos)
    lastRow = now
  }

  /** Attends to keys for as long as the share lasts. */
  def spend(attend: Due => Unit): Unit = {
    var began = System.nanoTime()
    while (credit > 0 && !isEmpty) {
      attend(next())
      val ended = System.nanoTime()
      credit -= ended - began
      began = ended
    }
  }
}

object Backlog {
  /** One part in so many. */
  private val Share = 4
  /** Between two rows, at most. */
  private val MostNanos = 25L * 1000 * 1000
}
