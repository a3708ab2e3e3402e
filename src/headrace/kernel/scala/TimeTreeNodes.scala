package org.apache.spark.sql.headrace

import java.nio.ByteBuffer

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform

private[headrace] sealed abstract class Node {
  var id: Long
  var dirty = false
  /** Whether the store has a node of this id. */
  var stored = false
  def level: Int
  def size: Int
  def count: Long
  def first: Long
  def last: Long
  def write(out: ByteWriter): Unit
}

/** Up to `LeafCapacity` events. The rows lie in one byte array in order of arrival; the tables order them by time. */
private[headrace] final class Leaf(var id: Long) extends Node {
  var times = new Array[Long](8)
  private var offsets = new Array[Int](8)
  private var lengths = new Array[Int](8)
  private var data = Array.emptyByteArray
  private var used = 0
  var size = 0

  override def level: Int = 0
  override def count: Long = size
  override def first: Long = times(0)
  override def last: Long = times(size - 1)

  def point(row: UnsafeRow, i: Int): Unit = row.pointTo(data, Platform.BYTE_ARRAY_OFFSET + offsets(i), lengths(i))

  /** The number of events with a time at or before `time`. */
  def upperBound(time: Long): Int = {
    var low = 0
    var high = size
    while (low < high) {
      val middle = (low + high) >>> 1
      if (times(middle) <= time) low = middle + 1 else high = middle
    }
    low
  }

  def insert(at: Int, time: Long, row: UnsafeRow): Unit = {
    val length = row.getSizeInBytes
    if (used + length > data.length) data = java.util.Arrays.copyOf(data, math.max(used + length, data.length * 2))
    row.writeToMemory(data, Platform.BYTE_ARRAY_OFFSET + used)
    place(at, time, used, length)
    used += length
  }

  private def place(at: Int, time: Long, offset: Int, length: Int): Unit = {
    if (size == times.length) {
      val room = size * 2
      times = java.util.Arrays.copyOf(times, room)
      offsets = java.util.Arrays.copyOf(offsets, room)
      lengths = java.util.Arrays.copyOf(lengths, room)
    }
    System.arraycopy(times, at, times, at + 1, size - at)
    System.arraycopy(offsets, at, offsets, at + 1, size - at)
    System.arraycopy(lengths, at, lengths, at + 1, size - at)
    times(at) = time
    offsets(at) = offset
    lengths(at) = length
    size += 1
  }

  def moveTail(from: Int, target: Leaf): Unit = {
    val row = new UnsafeRow(0)
    var i = from
    while (i < size) { point(row, i); target.insert(target.size, times(i), row); i += 1 }
    size = from
  }

  def dropHead(number: Int): Unit = if (number > 0) {
    size -= number
    System.arraycopy(times, number, times, 0, size)
    System.arraycopy(offsets, number, offsets, 0, size)
    System.arraycopy(lengths, number, lengths, 0, size)
  }

  override def write(out: ByteWriter): Unit = {
    out.putInt(0)
    out.putInt(size)
    var i = 0
    while (i < size) { out.putLong(times(i)); out.putInt(lengths(i)); i += 1 }
    i = 0
    while (i < size) { out.putBytes(data, offsets(i), lengths(i)); i += 1 }
  }
}

private[headrace] object Leaf {
  def read(id: Long, in: ByteBuffer): Leaf = {
    val leaf = new Leaf(id)
    val size = in.getInt()
    var offset = in.position() + size * 12
    var i = 0
    while (i < size) {
      val time = in.getLong()
      val length = in.getInt()
      leaf.place(i, time, offset, length)
      offset += length
      i += 1
    }
    leaf.data = in.array()
    leaf.used = offset
    leaf
  }
}

/** Up to `InnerCapacity` children, each with its span of time, its number of events, and the measures over them if these can be computed. */
private[headrace] final class Inner(var id: Long, val level: Int) extends Node {
  import TimeTree.{Entry, InnerCapacity}

  val children = new Array[Long](InnerCapacity + 1)
  val firsts = new Array[Long](InnerCapacity + 1)
  val lasts = new Array[Long](InnerCapacity + 1)
  val counts = new Array[Long](InnerCapacity + 1)
  val summaries = new Array[Array[Byte]](InnerCapacity + 1)
  var size = 0

  override def count: Long = countBefore(size)
  override def first: Long = firsts(0)
  override def last: Long = lasts(size - 1)

  /** Whether all children have summaries. */
  def isKnown: Boolean = { var i = 0; while (i < size && summaries(i) != TimeTree.Unknown) i += 1; i == size }

  def countBefore(i: Int): Long = { var sum = 0L; var k = 0; while (k < i) { sum += counts(k); k += 1 }; sum }

  def set(i: Int, e: Entry): Unit = {
    children(i) = e.child; firsts(i) = e.first; lasts(i) = e.last; counts(i) = e.count; summaries(i) = e.summary
  }

  def entry(i: Int): Entry = Entry(children(i), firsts(i), lasts(i), counts(i), summaries(i))

  def append(e: Entry): Unit = insert(size, e)

  def insert(at: Int, e: Entry): Unit = {
    var i = size
    while (i > at) { set(i, entry(i - 1)); i -= 1 }
    set(at, e)
    size += 1
  }

  def moveTail(from: Int, target: Inner): Unit = {
    var i = from
    while (i < size) { target.append(entry(i)); i += 1 }
    size = from
  }

  def removeHead(): Unit = {
    var i = 1
    while (i < size) { set(i - 1, entry(i)); i += 1 }
    size -= 1
  }

  override def write(out: ByteWriter): Unit = {
    out.putInt(level)
    out.putInt(size)
    var i = 0
    while (i < size) {
      out.putLong(children(i)); out.putLong(firsts(i)); out.putLong(lasts(i)); out.putLong(counts(i))
      Pane.put(out, summaries(i))
      i += 1
    }
  }
}

private[headrace] object Inner {
  def read(id: Long, level: Int, in: ByteBuffer): Inner = {
    val inner = new Inner(id, level)
    val size = in.getInt()
    var i = 0
    while (i < size) {
      val child = in.getLong()
      val first = in.getLong()
      val last = in.getLong()
      val count = in.getLong()
      inner.append(TimeTree.Entry(child, first, last, count, Pane.get(in)))
      i += 1
    }
    inner
  }
}
