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
  /** Times that are known to have a timer. */
  private val timed = mutable.HashSet.empty[Long]

  def turnTo(key: Array[Byte]): Unit = current = key

  /** The current key wants attention when the watermark has reached that time. */
  def note(time: Long): Unit = ForKey(Agenda.keyOf(time)) {
    // Spark complains of a timer that is there already: a mark among the keys says so.
    if (timed.add(time) && !state.containsKey(Agenda.Mark)) {
      state.updateValue(Agenda.Mark, true)
      ForKey(Agenda.Key) { handle.registerTimer(time) }
    }
    state.updateValue(current, true)
  }

  /**
   * The keys that wait for that time, whose timer Spark takes away. They are read as they are asked for, many at a time: Spark reads one
   * ahead, into a row that it uses again for whatever else is read before the next one is taken.
   */
  def waiting(time: Long): Iterator[Due] = {
    val notes = Agenda.keyOf(time)
    timed -= time
    ForKey(notes) { state.removeKey(Agenda.Mark) }
    Iterator.single(notes).flatMap(ForKey(_) { state.keys() }).map(Due(_, time, noted = true)).grouped(Agenda.AtATime).flatten
  }

  /** It has had its attention. */
  def done(due: Due): Unit = if (due.noted) ForKey(Agenda.keyOf(due.time)) { state.removeKey(due.key) }
}

/** A key that wants attention, since when, and whether it stands in the agenda; otherwise it had a timer of its own. */
case class Due(key: Array[Byte], time: Long, noted: Boolean)

object Agenda {
  val Key: Array[Byte] = "agenda".getBytes
  /** No row's key is empty. */
  private val Mark = Array.emptyByteArray
  private val AtATime = 256

  private def keyOf(time: Long): Array[Byte] = ByteBuffer.allocate(Key.length + 8).put(Key).putLong(time).array

  def open(handle: StatefulProcessorHandle): Agenda =
    new Agenda(handle, handle.getMapState[Array[Byte], Boolean]("agenda", StateEncoders.Bytes, StateEncoders.Boolean, TTLConfig.NONE))
}
