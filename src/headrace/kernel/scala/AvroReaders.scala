package org.apache.spark.sql.headrace

import java.math.{BigDecimal => JavaDecimal, BigInteger}
import java.nio.ByteBuffer
import java.util.UUID

import org.apache.avro.{LogicalTypes, Schema}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Reads one Avro value from where the cursor stands. */
private[headrace] abstract class AvroReader {
  def read(in: ByteCursor): Any
  /** The same into a slot of a row, which holds numbers without boxes. */
  def into(in: ByteCursor, row: DecodedRow, slot: Int): Unit = {
    val value = read(in)
    if (value != null) row.update(slot, value)
  }
}

private[headrace] object AvroReaders {
  import Schema.Type._

  final class Longs(val read64: ByteCursor => Long) extends AvroReader {
    override def read(in: ByteCursor): Any = read64(in)
    override def into(in: ByteCursor, row: DecodedRow, slot: Int): Unit = row.setLong(slot, read64(in))
  }
  object Longs64 extends AvroReader {
    override def read(in: ByteCursor): Any = in.readLong()
    override def into(in: ByteCursor, row: DecodedRow, slot: Int): Unit = row.setLong(slot, in.readLong())
  }
  object Ints extends AvroReader {
    override def read(in: ByteCursor): Any = in.readInt()
    override def into(in: ByteCursor, row: DecodedRow, slot: Int): Unit = row.setInt(slot, in.readInt())
  }
  object Doubles extends AvroReader {
    override def read(in: ByteCursor): Any = java.lang.Double.longBitsToDouble(in.readFixed64())
    override def into(in: ByteCursor, row: DecodedRow, slot: Int): Unit =
      row.setDouble(slot, java.lang.Double.longBitsToDouble(in.readFixed64()))
  }
  object Floats extends AvroReader {
    override def read(in: ByteCursor): Any = java.lang.Float.intBitsToFloat(in.readFixed32())
  }
  object Booleans extends AvroReader {
    override def read(in: ByteCursor): Any = in.readByte() match {
      case 0 => false
      case 1 => true
      case other => throw new Misfit(s"the payload has the byte $other where a boolean is due")
    }
  }
  object Strings extends AvroReader {
    override def read(in: ByteCursor): Any = in.readText(in.readLength())
    override def into(in: ByteCursor, row: DecodedRow, slot: Int): Unit = row.update(slot, in.readText(in.readLength()))
  }
  object Nulls extends AvroReader {
    override def read(in: ByteCursor): Any = null
  }
  final class Computed(compute: ByteCursor => Any) extends AvroReader {
    override def read(in: ByteCursor): Any = compute(in)
  }

  /** A primitive, enum or fixed, read as the writer wrote it and made what the column holds. */
  def scalar(writer: Schema, reader: Schema, to: DataType, path: String): AvroReader = {
    def unsupported(): Nothing =
      throw new IllegalArgumentException(s"field `$path`: Avro ${writer.getType.getName} can't be read as ${to.simpleString}")
    (writer.getType, to) match {
      case (NULL, _) => Nulls
      case (BOOLEAN, BooleanType) => Booleans
      case (INT, IntegerType) => Ints
      case (INT, DateType) => Ints
      case (INT | LONG, LongType) => Longs64
      case (INT | LONG, TimestampType | TimestampNTZType) => instant(writer, reader)
      case (INT | LONG, DoubleType) => new Computed(in => in.readLong().toDouble)
      case (INT | LONG, FloatType) => new Computed(in => in.readLong().toFloat)
      case (FLOAT, FloatType) => Floats
      case (FLOAT, DoubleType) => new Computed(in => java.lang.Float.intBitsToFloat(in.readFixed32()).toDouble)
      case (DOUBLE, DoubleType) => Doubles
      case (STRING | BYTES, StringType) => Strings
      case (STRING | BYTES, BinaryType) => new Computed(in => in.readBytes(in.readLength()))
      case (BYTES, d: DecimalType) => decimal(writer, reader, d, path, in => in.readBytes(in.readLength()))
      case (FIXED, d: DecimalType) => decimal(writer, reader, d, path, in => in.readBytes(writer.getFixedSize))
      case (FIXED, BinaryType) => new Computed(in => in.readBytes(writer.getFixedSize))
      case (FIXED, StringType) if writer.getFixedSize == 16 => new Computed(in => uuid(in.readBytes(16)))
      case _ => unsupported()
    }
  }

  /** Microseconds. The unit is the writer's: it says what its numbers mean; one that does not, means the reader's. */
  private def instant(writer: Schema, reader: Schema): AvroReader = {
    val unit = Option(writer.getLogicalType).orElse(Option(reader.getLogicalType)).map(_.getName).getOrElse("")
    if (unit.endsWith("millis")) new Longs(in => try Math.multiplyExact(in.readLong(), 1000L) catch {
      case _: ArithmeticException => throw new Misfit("the payload has a time that is beyond all years")
    }) else if (unit.endsWith("nanos")) new Longs(in => Math.floorDiv(in.readLong(), 1000L))
    else Longs64
  }

  private def decimal(writer: Schema, reader: Schema, to: DecimalType, path: String, bytes: ByteCursor => Array[Byte]): AvroReader = {
    val scale = Seq(writer, reader).map(_.getLogicalType).collectFirst { case d: LogicalTypes.Decimal => d.getScale }.getOrElse(to.scale)
    new Computed(in => {
      val raw = bytes(in)
      if (raw.length == 0 || raw.length > MostDecimalBytes) throw new Misfit(s"field `$path` is not a ${to.simpleString}")
      val value = Decimal(new JavaDecimal(new BigInteger(raw), scale))
      // Never rounded: a contract says how many digits there are.
      if (scale > to.scale && value.toJavaBigDecimal.stripTrailingZeros.scale > to.scale || !value.changePrecision(to.precision, to.scale)) {
        throw new Misfit(s"field `$path` is not a ${to.simpleString}")
      }
      value
    })
  }

  private def uuid(bytes: Array[Byte]): UTF8String = {
    val buffer = ByteBuffer.wrap(bytes)
    UTF8String.fromString(new UUID(buffer.getLong, buffer.getLong).toString)
  }

  private val MostDecimalBytes = 1024
}
