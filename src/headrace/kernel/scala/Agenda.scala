package org.apache.spark.sql.headrace

import java.nio.ByteBuffer

import scala.collection.mutable

import org.apache.spark.sql.streaming.{MapState, StatefulProcessorHandle, TTLConfig}

/**
 * Which keys of a partition wait for the watermark to reach which time: one timer of Spark's for each time, not for each key. Windows of many
 * keys end at the same time, and what is only cleared away can wait for a time that others wait for; for a timer Spark keeps two rows, reads each before it writes it, and in real time takes all timers that have
 * expired before the next row has its turn.
 *
 * The notes lie in the partition's own state store, under keys that no row can have.
 */
final class Agenda(handle: StatefulProcessorHandle, state: MapState[Array[Byte], Boolean]) {
  private var current: Array[Byte] = _
  /** The times that have a timer. */
  private lazy val timed: mutable.Set[Long] = ForKey(Agenda.Key, current) { mutable.HashSet.from(handle.listTimers()) }

  def turnTo(key: Array[Byte]): Unit = current = key

  /** The current key wants attention when the watermark has reached that time. */
  def note(time: Long): Unit = {
    if (!timed(time)) { ForKey(Agenda.Key, current) { handle.registerTimer(time) }; timed += time }
    val key = current
    ForKey(Agenda.keyOf(time), current) { state.updateValue(key, true) }
  }

  /**
   * The keys that wait for that time, whose timer Spark takes away. They are read as they are asked for, many at a time: Spark reads one
   * ahead, into a row that it uses again for whatever else is read before the next one is taken.
   */
  def waiting(time: Long, current: Array[Byte]): Iterator[Due] = {
    timed -= time
    ForKey(Agenda.keyOf(time), current) { state.keys() }.map(Due(_, time, noted = true)).grouped(Agenda.AtATime).flatten
  }

  /** It has had its attention. */
  def done(due: Due, current: Array[Byte]): Unit =
    if (due.noted) ForKey(Agenda.keyOf(due.time), current) { state.removeKey(due.key) }
}

/** A key that wants attention, since when, and whether it stands in the agenda; otherwise it had a timer of its own. */
case class Due(key: Array[Byte], time: Long, noted: Boolean)

object Agenda {
  val Key: Array[Byte] = "agenda".getBytes
  private val AtATime = 256

  private def keyOf(time: Long): Array[Byte] = ByteBuffer.allocate(Key.length + 8).put(Key).putLong(time).array

  def open(handle: StatefulProcessorHandle): Agenda =
    new Agenda(handle, handle.getMapState[Array[Byte], Boolean]("agenda", StateEncoders.Bytes, StateEncoders.Boolean, TTLConfig.NONE))
}
