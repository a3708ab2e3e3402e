package org.apache.spark.sql.headrace

import org.apache.spark.unsafe.types.UTF8String

/** A place in a payload, with the numbers of Avro and Protobuf. Whatever it is asked for beyond the end is a [[Misfit]]. */
private[headrace] final class ByteCursor {
  private var bytes: Array[Byte] = _
  private var at = 0
  private var end = 0

  def over(payload: Array[Byte], from: Int): ByteCursor = over(payload, from, payload.length)

  def over(payload: Array[Byte], from: Int, until: Int): ByteCursor = {
    bytes = payload
    at = from
    end = until
    this
  }

  def position: Int = at
  def remaining: Int = end - at
  def limit: Int = end
  def atEnd: Boolean = at >= end

  /** Narrows what is left to the next `length` bytes; returns the end to go back to with `widen`. */
  def narrow(length: Int): Int = {
    need(length)
    val outer = end
    end = at + length
    outer
  }

  def widen(outer: Int): Unit = end = outer

  def readByte(): Byte = {
    if (at >= end) truncated()
    val b = bytes(at)
    at += 1
    b
  }

  /** A varint as it is on the wire. */
  def readVarint(): Long = {
    var value = 0L
    var shift = 0
    while (true) {
      if (at >= end) truncated()
      val b = bytes(at)
      at += 1
      value |= (b & 0x7fL) << shift
      if (b >= 0) return value
      shift += 7
      if (shift > 63) throw new Misfit("the payload has a number of more than ten bytes")
    }
    value
  }

  /** A zigzag varint. */
  def readLong(): Long = {
    val n = readVarint()
    (n >>> 1) ^ -(n & 1)
  }

  def readInt(): Int = {
    val n = readLong()
    if (n != n.toInt) throw new Misfit(s"the payload has $n where an int is due")
    n.toInt
  }

  /** A length or count, which can't be negative nor go beyond the end. */
  def readLength(): Int = checkedLength(readLong())

  def checkedLength(n: Long): Int = {
    if (n < 0) throw new Misfit(s"the payload has the negative length $n")
    if (n > remaining) truncated()
    n.toInt
  }

  /** Four bytes, little-endian. */
  def readFixed32(): Int = {
    need(4)
    val value = (bytes(at) & 0xff) | ((bytes(at + 1) & 0xff) << 8) | ((bytes(at + 2) & 0xff) << 16) | ((bytes(at + 3) & 0xff) << 24)
    at += 4
    value
  }

  def readFixed64(): Long = {
    val low = readFixed32() & 0xffffffffL
    low | (readFixed32().toLong << 32)
  }

  def readBytes(length: Int): Array[Byte] = {
    need(length)
    val copy = java.util.Arrays.copyOfRange(bytes, at, at + length)
    at += length
    copy
  }

  /** UTF-8 text of that many bytes, checked: text that is none would be found much later, by whoever reads the results. */
  def readText(length: Int): UTF8String = {
    need(length)
    var ascii = true
    var i = at
    val until = at + length
    while (i < until) {
      if (bytes(i) < 0) {
        ascii = false
        i = until
      } else i += 1
    }
    // It points into the payload, which nobody changes.
    val text = UTF8String.fromBytes(bytes, at, length)
    at = until
    if (!ascii && !text.isValid) throw new Misfit("the payload has text that is not UTF-8")
    text
  }

  def skip(length: Int): Unit = {
    need(length)
    at += length
  }

  private def need(length: Int): Unit = if (length < 0 || length > end - at) truncated()

  private def truncated(): Nothing = throw new Misfit("the payload ends too early")
}
