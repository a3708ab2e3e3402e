package org.apache.spark.sql.headrace

import java.nio.ByteBuffer

/** A growing byte buffer, big-endian as ByteBuffer reads it. */
final class ByteWriter(initial: Int = 256) {
  private var buffer = ByteBuffer.allocate(initial)

  private def room(bytes: Int): ByteBuffer = {
    if (buffer.remaining() < bytes) {
      val bigger = ByteBuffer.allocate(math.max(buffer.capacity() * 2, buffer.position() + bytes))
      buffer.flip()
      bigger.put(buffer)
      buffer = bigger
    }
    buffer
  }

  def clear(): Unit = buffer.clear()
  def putByte(v: Int): Unit = room(1).put(v.toByte)
  def putInt(v: Int): Unit = room(4).putInt(v)
  def putLong(v: Long): Unit = room(8).putLong(v)
  def putDouble(v: Double): Unit = room(8).putDouble(v)
  def putBytes(v: Array[Byte]): Unit = putBytes(v, 0, v.length)
  def putBytes(v: Array[Byte], offset: Int, length: Int): Unit = room(length).put(v, offset, length)
  def position: Int = buffer.position()
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
  def toBytes: Array[Byte] = java.util.Arrays.copyOf(buffer.array(), buffer.position())
}
