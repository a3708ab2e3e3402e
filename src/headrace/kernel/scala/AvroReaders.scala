package org.apache.spark.sql.headrace

import java.math.{BigDecimal => JavaDecimal, BigInteger}
import java.nio.ByteBuffer
import java.util.UUID

import org.apache.avro.{LogicalTypes, Schema}

import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Readers of Avro's own kinds of value; those of numbers serve Protobuf too, which writes them alike. */
private[headrace] object AvroReaders {
  import Schema.Type._

  object Longs extends LongReader {
    override def long(in: ByteCursor): Long = in.readLong()
  }
  object Ints extends IntReader {
    override def int(in: ByteCursor): Int = in.readInt()
  }
  object Doubles extends DoubleReader {
    override def double(in: ByteCursor): Double = java.lang.Double.longBitsToDouble(in.readFixed64())
  }
  private object Millis extends LongReader {
    override def long(in: ByteCursor): Long = {
      val n = in.readLong()
      if (n > MostMillis || n < -MostMillis) throw new Misfit("the payload has a time that is beyond all years")
      n * 1000L
    }
  }
  private object Nanos extends LongReader {
    override def long(in: ByteCursor): Long = Math.floorDiv(in.readLong(), 1000L)
  }
  object Floats extends ValueReader {
    override def read(in: ByteCursor): Any = java.lang.Float.intBitsToFloat(in.readFixed32())
  }
  object Booleans extends ValueReader {
    override def read(in: ByteCursor): Any = in.readByte() match {
      case 0 => false
      case 1 => true
      case other => throw new Misfit(s"the payload has the byte $other where a boolean is due")
    }
  }
  object Strings extends ValueReader {
    override def read(in: ByteCursor): Any = in.readText(in.readLength())
  }
  object Nulls extends ValueReader {
    override def read(in: ByteCursor): Any = null
  }

  /** A primitive or fixed, read as the writer wrote it and made what the column holds. */
  def scalar(writer: Schema, reader: Schema, to: DataType, path: String): ValueReader = {
    def unsupported(): Nothing =
      throw new IllegalArgumentException(s"field `$path`: Avro ${writer.getType.getName} can't be read as ${to.simpleString}")
    (writer.getType, to) match {
      case (NULL, _) => Nulls
      case (BOOLEAN, BooleanType) => Booleans
      case (INT, IntegerType) => Ints
      case (INT, DateType) => Ints
      case (INT | LONG, LongType) => Longs
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
  private def instant(writer: Schema, reader: Schema): ValueReader = {
    val unit = Option(writer.getLogicalType).orElse(Option(reader.getLogicalType)).map(_.getName).getOrElse("")
    if (unit.endsWith("millis")) Millis else if (unit.endsWith("nanos")) Nanos else Longs
  }

  private def decimal(writer: Schema, reader: Schema, to: DecimalType, path: String, bytes: ByteCursor => Array[Byte]): ValueReader = {
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
  private val MostMillis = Long.MaxValue / 1000
}
