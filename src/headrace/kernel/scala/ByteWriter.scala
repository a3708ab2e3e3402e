package org.apache.spark.sql.headrace

import java.nio.ByteBuffer

import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** A growing byte buffer, big-endian as ByteBuffer reads it. */
final class ByteWriter(initial: Int = 256) {
  private var bytes = new Array[Byte](initial)
  /** The same bytes, for numbers. */
  private var numbers = ByteBuffer.wrap(bytes)
  private var used = 0

  /** Where to write so many bytes. */
  private def room(wanted: Int): Int = {
    val at = used
    if (bytes.length - at < wanted) {
      bytes = java.util.Arrays.copyOf(bytes, math.max(bytes.length * 2, at + wanted))
      numbers = ByteBuffer.wrap(bytes)
    }
    used = at + wanted
    at
  }

  def clear(): Unit = used = 0
  def putByte(v: Int): Unit = { val at = room(1); bytes(at) = v.toByte }
  def putInt(v: Int): Unit = { val at = room(4); numbers.putInt(at, v) }
  def putLong(v: Long): Unit = { val at = room(8); numbers.putLong(at, v) }
  def putDouble(v: Double): Unit = { val at = room(8); numbers.putDouble(at, v) }
  def putBytes(v: Array[Byte]): Unit = putBytes(v, 0, v.length)
  def putBytes(v: Array[Byte], offset: Int, length: Int): Unit = { val at = room(length); System.arraycopy(v, offset, bytes, at, length) }
  def putText(v: UTF8String): Unit = { val at = room(v.numBytes); v.writeToMemory(bytes, Platform.BYTE_ARRAY_OFFSET + at) }
  /** In decimal digits. */
  def putDigits(v: Long): Unit = if (v == Long.MinValue) putBytes(v.toString.getBytes("US-ASCII")) else {
    if (v < 0) putByte('-')
    var rest = math.abs(v)
    var width = 1
    while (width < ByteWriter.Powers.length && rest >= ByteWriter.Powers(width)) width += 1
    var at = room(width) + width
    while (width > 0) {
      val tenth = rest / 10
      at -= 1
      bytes(at) = ('0' + (rest - tenth * 10)).toByte
      rest = tenth
      width -= 1
    }
  }
  def position: Int = used
  /** What was put at that position. */
  def byteAt(position: Int): Byte = bytes(position)
  /** Takes back what was put from that position on. */
  def rewind(position: Int): Unit = used = position
  /** A varint, as Protobuf has it. */
  def putVarint(v: Long): Unit = {
    var rest = v
    while ((rest & ~0x7fL) != 0) {
      putByte((rest & 0x7f).toInt | 0x80)
      rest >>>= 7
    }
    putByte(rest.toInt)
  }
  /** A zigzag varint, as Avro has it. */
  def putZigzag(v: Long): Unit = putVarint((v << 1) ^ (v >> 63))
  /** Little-endian. */
  def putFixed32(v: Int): Unit = putInt(Integer.reverseBytes(v))
  def putFixed64(v: Long): Unit = putLong(java.lang.Long.reverseBytes(v))
  def toBytes: Array[Byte] = java.util.Arrays.copyOf(bytes, used)
}

private object ByteWriter {
  /** Of ten, as far as a long goes. */
  private val Powers = Array.iterate(1L, 19)(_ * 10)
}
