package org.apache.spark.sql.headrace

import java.nio.ByteBuffer

import scala.collection.mutable
import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.streaming.StatefulProcessorHandle

/**
 * Which keys of a partition wait for the watermark to reach which time: one timer of Spark's for each time, not for each key. Windows of many
 * keys end at the same time, and what is only cleared away can wait for a time that others wait for; for a timer Spark keeps two rows, reads
 * each before it writes it, and in real time takes all timers that have expired before the next row has its turn.
 *
 * New notes are kept in memory until `save`, and then written many keys to a row. They lie in the partition's own state store, under keys that no
 * row can have: for each time a row that says how many others there are, and those.
 */
final class Agenda(handle: StatefulProcessorHandle, store: NodeStore) {
  private val unsaved = mutable.LongMap.empty[ArrayBuffer[Array[Byte]]]
  /** How many notes are unsaved that are for times ahead of the watermark. */
  private var ahead = 0
  private var current: Array[Byte] = _
  private var watermark: Long = _
  private val writer = new ByteWriter

  def turnTo(key: Array[Byte], at: Long): Unit = { current = key; watermark = at }

  def isSaved: Boolean = unsaved.isEmpty

  /** The current key wants attention when the watermark has reached that time. */
  def note(time: Long): Unit = {
    unsaved.getOrElseUpdate(time, new ArrayBuffer) += current
    if (time > watermark) {
      ahead += 1
      // Of a time that the watermark has reached there may be rows that are still to be read: they must not be written over.
      if (ahead >= Agenda.MostUnsaved) save(_ > watermark)
    }
  }

  /** Takes the keys whose time has come before their notes were saved. */
  def unsavedUntil(watermark: Long): Iterator[Due] = if (isSaved) Iterator.empty else {
    val times = unsaved.keysIterator.filter(_ <= watermark).toArray.sorted
    times.iterator.flatMap { time =>
      unsaved.remove(time).get.iterator.map(Due(_, time))
    }
  }

  /** All notes. Only when no key waits that `waiting` has told of. */
  def save(): Unit = save(_ => true)

  private def save(wanted: Long => Boolean): Unit = if (!isSaved) {
    unsaved.foreachEntry { (time, keys) =>
      if (wanted(time)) ForKey(Agenda.keyOf(time)) {
        var rows = rowsThere()
        if (rows == 0L) ForKey(Agenda.Key) { handle.registerTimer(time) }
        keys.grouped(Agenda.KeysInRow).foreach { some => rows += 1; store.put(rows, packed(some)) }
        store.put(0L, ByteBuffer.allocate(8).putLong(rows).array)
      }
    }
    unsaved.filterInPlace((time, _) => !wanted(time))
    ahead = 0
  }

  /** Takes the keys that wait for that time, whose timer Spark takes away. They are read as they are asked for. */
  def waiting(time: Long): Iterator[Due] = {
    val notes = Agenda.keyOf(time)
    val rows = ForKey(notes) { val there = rowsThere(); store.remove(0L); there }
    Iterator.range(1L, rows + 1).flatMap { row =>
      val bytes = ForKey(notes) { val found = store.get(row); store.remove(row); found }
      unpacked(ByteBuffer.wrap(bytes)).map(Due(_, time))
    }
  }

  private def rowsThere(): Long = { val bytes = store.get(0L); if (bytes == null) 0L else ByteBuffer.wrap(bytes).getLong }

  private def packed(keys: collection.Seq[Array[Byte]]): Array[Byte] = {
    writer.clear()
    keys.foreach { key => writer.putInt(key.length); writer.putBytes(key) }
    writer.toBytes
  }

  private def unpacked(bytes: ByteBuffer): Iterator[Array[Byte]] =
    Iterator.continually(bytes).takeWhile(_.hasRemaining).map { in => val key = new Array[Byte](in.getInt); in.get(key); key }
}

/** A key that wants attention, and since when. */
case class Due(key: Array[Byte], time: Long)

object Agenda {
  val Key: Array[Byte] = "agenda".getBytes
  private val KeysInRow = 256
  /** Some megabytes. */
  private val MostUnsaved = 1 << 16

  private def keyOf(time: Long): Array[Byte] = ByteBuffer.allocate(Key.length + 8).put(Key).putLong(time).array

  def open(handle: StatefulProcessorHandle): Agenda = new Agenda(handle, MapNodeStore.open(handle, "agenda"))
}
