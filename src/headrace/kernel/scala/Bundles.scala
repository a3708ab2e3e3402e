package org.apache.spark.sql.headrace

import java.util.Arrays

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform

/** Rows of one key as one binary value: each with its length before it, so that two bundles make one by following each other. */
object Bundles {
  /** Eight bytes, though a length has four: the rows stay aligned. */
  private val LengthBytes = 8

  def of(row: UnsafeRow): Array[Byte] = {
    val out = new Array[Byte](LengthBytes + row.getSizeInBytes)
    Platform.putLong(out, Platform.BYTE_ARRAY_OFFSET, row.getSizeInBytes.toLong)
    row.writeToMemory(out, Platform.BYTE_ARRAY_OFFSET + LengthBytes)
    out
  }

  def foreachRow(bundle: Array[Byte])(use: Array[Byte] => Unit): Unit = {
    var at = 0
    while (at < bundle.length) {
      val start = at + LengthBytes
      at = start + Platform.getLong(bundle, Platform.BYTE_ARRAY_OFFSET + at).toInt
      use(Arrays.copyOfRange(bundle, start, at))
    }
  }
}

/**
 * Puts the rows of a key together on their way into the shuffle. What Spark writes there, reads, sorts and hands to the operator is then
 * bundles, of which there are fewer, and the key travels once with each. For batches: a row waits here until the buffer is full or there are
 * no more.
 *
 * What waits lies in a few arrays that are used again, and not in an object for each row: the collector would copy all of them, again and again.
 */
final class Bundler(rows: Iterator[Incoming], mostBytes: Int = Bundler.MostBytes) extends Iterator[Incoming] {
  import Bundler._

  /** Keys, and rows: where the next one of its key is, how long it is, and its bytes. */
  private var data = new Array[Byte](1 << 16)
  private var used = 0
  /** By key, in order of their first rows. */
  private var keys = new Array[Waiting](256)
  private var count = 0
  private var emitted = 0
  /** Numbers of keys by hash, with open addressing; a number is one more than it is above. */
  private var table = new Array[Int](1024)

  override def hasNext: Boolean = emitted < count || { fill(); emitted < count }

  override def next(): Incoming = {
    if (!hasNext) Iterator.empty.next()
    emitted += 1
    joined(keys(emitted - 1))
  }

  private def fill(): Unit = {
    used = 0
    count = 0
    emitted = 0
    Arrays.fill(table, 0)
    while (used < mostBytes && rows.hasNext) { val in = rows.next(); append(waiting(in.key), in.row) }
  }

  private def waiting(key: Array[Byte]): Waiting = {
    val hash = hashOf(key)
    var slot = slotOf(hash)
    while (table(slot) != 0) {
      val there = keys(table(slot) - 1)
      if (there.hash == hash && Arrays.equals(data, there.key, there.key + there.keyLength, key, 0, key.length)) return there
      slot = (slot + 1) & (table.length - 1)
    }
    val fresh = added()
    table(slot) = count
    fresh.begin(hash, used, key.length)
    room(key.length)
    System.arraycopy(key, 0, data, used, key.length)
    used += key.length
    if (2 * count > table.length) spread()
    fresh
  }

  private def added(): Waiting = {
    if (count == keys.length) keys = Arrays.copyOf(keys, 2 * count)
    if (keys(count) == null) keys(count) = new Waiting
    count += 1
    keys(count - 1)
  }

  private def spread(): Unit = {
    table = new Array[Int](2 * table.length)
    var i = 0
    while (i < count) {
      var slot = slotOf(keys(i).hash)
      while (table(slot) != 0) slot = (slot + 1) & (table.length - 1)
      i += 1
      table(slot) = i
    }
  }

  private def slotOf(hash: Long): Int = (hash ^ (hash >>> 32)).toInt & (table.length - 1)

  private def append(to: Waiting, row: Array[Byte]): Unit = {
    room(LinkBytes + row.length)
    Platform.putInt(data, Platform.BYTE_ARRAY_OFFSET + used, NoRow)
    Platform.putInt(data, Platform.BYTE_ARRAY_OFFSET + used + 4, row.length)
    System.arraycopy(row, 0, data, used + LinkBytes, row.length)
    if (to.last == NoRow) to.first = used else Platform.putInt(data, Platform.BYTE_ARRAY_OFFSET + to.last, used)
    to.last = used
    to.bytes += row.length
    used += LinkBytes + row.length
  }

  private def room(bytes: Int): Unit =
    if (used + bytes > data.length) data = Arrays.copyOf(data, math.max(used + bytes, 2 * data.length))

  private def joined(of: Waiting): Incoming = {
    val all = new Array[Byte](of.bytes)
    var to = 0
    var at = of.first
    while (at != NoRow) {
      val length = Platform.getInt(data, Platform.BYTE_ARRAY_OFFSET + at + 4)
      System.arraycopy(data, at + LinkBytes, all, to, length)
      to += length
      at = Platform.getInt(data, Platform.BYTE_ARRAY_OFFSET + at)
    }
    Incoming(Arrays.copyOfRange(data, of.key, of.key + of.keyLength), all)
  }
}

object Bundler {
  /** Of a task. Enough for some rows of each of ten thousand keys, little next to what a batch takes besides. */
  val MostBytes: Int = 16 << 20
  private val LinkBytes = 8
  private val NoRow = -1

  /** A key with rows that wait: where it is, and where the first and the last of its rows are. */
  private final class Waiting {
    var hash = 0L
    var key = 0
    var keyLength = 0
    var first: Int = NoRow
    var last: Int = NoRow
    var bytes = 0

    def begin(hash: Long, key: Int, keyLength: Int): Unit = {
      this.hash = hash; this.key = key; this.keyLength = keyLength
      first = NoRow; last = NoRow; bytes = 0
    }
  }

  /** Grouping keys begin with one, but for a few. */
  private def hashOf(key: Array[Byte]): Long =
    if (key.length < KeyBytes.HashBytes) Arrays.hashCode(key).toLong else Platform.getLong(key, Platform.BYTE_ARRAY_OFFSET)
}
