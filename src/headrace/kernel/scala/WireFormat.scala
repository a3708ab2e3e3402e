package org.apache.spark.sql.headrace

/**
 * Confluent's wire format: a zero byte, the schema's id as four bytes, big-endian, then the payload. Protobuf has the path to the message
 * in between: how many numbers, then the numbers, as zigzag varints; a single zero stands for the path [0], the first message of the file.
 */
object WireFormat {
  val Header = 5

  /** The id of the writer's schema. */
  def id(bytes: Array[Byte]): Int = {
    if (bytes.length == 0) throw new Misfit("the payload is empty: it has no magic byte and no schema id")
    if (bytes(0) != 0) throw new Misfit(f"the payload starts with the byte 0x${bytes(0) & 0xff}%02x, not with the magic byte 0x00")
    if (bytes.length < Header) throw new Misfit(s"the payload has ${bytes.length} bytes: too few for a schema id")
    ((bytes(1) & 0xff) << 24) | ((bytes(2) & 0xff) << 16) | ((bytes(3) & 0xff) << 8) | (bytes(4) & 0xff)
  }

  def writeHeader(id: Int, out: ByteWriter): Unit = {
    out.putByte(0)
    out.putInt(id)
  }

  /** The path to the message, from where the cursor stands. */
  def messagePath(in: ByteCursor): Seq[Int] = {
    val count = in.readInt()
    if (count == 0) FirstMessage
    else if (count < 0 || count > MostNested) throw new Misfit(s"the payload's message indexes are broken: $count of them")
    else Seq.fill(count)(in.readInt())
  }

  def writeMessagePath(path: Seq[Int], out: ByteWriter): Unit =
    if (path == FirstMessage) out.putByte(0)
    else {
      out.putZigzag(path.length.toLong)
      path.foreach(index => out.putZigzag(index.toLong))
    }

  val FirstMessage: Seq[Int] = Seq(0)
  private val MostNested = 64
}

/** What is wrong with a payload or a row. Without a stack trace: it is data, and there may be many. */
private[headrace] final class Misfit(reason: String) extends RuntimeException(reason, null, false, false)
