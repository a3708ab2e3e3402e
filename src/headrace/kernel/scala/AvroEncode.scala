package org.apache.spark.sql.headrace

import java.io.ByteArrayOutputStream
import java.math.{BigDecimal => JavaDecimal, RoundingMode}
import java.util.UUID

import scala.jdk.CollectionConverters._

import org.apache.avro.{LogicalTypes, Schema}
import org.apache.avro.generic.{GenericData, GenericDatumWriter}
import org.apache.avro.io.EncoderFactory

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters
import org.apache.spark.sql.types._

/**
 * Rows as Avro, straight from the row's own bytes. Made once per row type and schema; what can't fit at all is an
 * IllegalArgumentException then, what a single row lacks is a [[Misfit]] of that row: a null where the schema has none, a symbol that an
 * enum does not have, a number with more digits than a decimal. Nothing is rounded. A field without a column is written as its default.
 */
private[headrace] final class AvroEncode(row: StructType, schema: Schema) {
  private type Writer = (SpecializedGetters, Int, ByteWriter) => Unit
  import Schema.Type._

  private val root: (InternalRow, ByteWriter) => Unit =
    if (schema.getType == RECORD) {
      val write = fields(row, schema, "")
      (values, out) => write(values, out)
    } else {
      if (row.length != 1) throw new IllegalArgumentException(s"the contract has a single value, the stream ${row.length} columns")
      val write = value(row.head.dataType, schema, row.head.name)
      (values, out) => write(values, 0, out)
    }

  def write(values: InternalRow, out: ByteWriter): Unit = root(values, out)

  private def fields(struct: StructType, record: Schema, prefix: String): (SpecializedGetters, ByteWriter) => Unit = {
    val known = record.getFields.asScala.map(_.name).toSet
    struct.fieldNames.find(!known(_)).foreach(name =>
      throw new IllegalArgumentException(s"column `$prefix$name` is no field of the contract"))
    val writers = record.getFields.asScala.toArray.map { field =>
      val at = struct.getFieldIndex(field.name).getOrElse(-1)
      if (at >= 0) (value(struct(at).dataType, field.schema, prefix + field.name), at)
      else if (field.hasDefaultValue) {
        val bytes = default(field)
        ((_: SpecializedGetters, _: Int, out: ByteWriter) => out.putBytes(bytes), 0)
      } else throw new IllegalArgumentException(s"the contract's field `$prefix${field.name}` has no default and the stream no such column")
    }
    (values, out) => {
      var i = 0
      while (i < writers.length) {
        val (write, at) = writers(i)
        write(values, at, out)
        i += 1
      }
    }
  }

  private def default(field: Schema.Field): Array[Byte] = {
    val bytes = new ByteArrayOutputStream
    val encoder = EncoderFactory.get.binaryEncoder(bytes, null)
    val data = new GenericData
    new GenericDatumWriter[Any](field.schema, data).write(data.getDefaultValue(field), encoder)
    encoder.flush()
    bytes.toByteArray
  }

  /** Writes the value at an ordinal, null or not. */
  private def value(from: DataType, to: Schema, path: String): Writer = to.getType match {
    case UNION => union(from, to, path)
    case NULL => (values, i, _) => if (!values.isNullAt(i)) throw new Misfit(s"field `$path` is not null, but the contract has only null")
    case _ =>
      val write = present(from, to, path)
      (values, i, out) =>
        if (values.isNullAt(i)) throw new Misfit(s"field `$path` is null, but the contract has no null there") else write(values, i, out)
  }

  private def union(from: DataType, to: Schema, path: String): Writer = {
    val types = to.getTypes.asScala.toArray
    val nothing = types.indexWhere(_.getType == NULL)
    def orNull(write: Writer): Writer = (values, i, out) =>
      if (!values.isNullAt(i)) write(values, i, out)
      else if (nothing >= 0) out.putZigzag(nothing.toLong)
      else throw new Misfit(s"field `$path` is null, but the contract has no null there")
    if (AvroUnions.isStruct(to)) from match {
      case members: StructType =>
        val branches = types.indices.filter(types(_).getType != NULL)
        if (members.length != branches.length) throw unfit(from, to, path)
        val writers = branches.zipWithIndex.map { case (b, m) => (b, present(members(m).dataType, types(b), s"$path.member$m")) }.toArray
        orNull { (values, i, out) =>
          val row = values.getStruct(i, members.length)
          val m = writers.indices.indexWhere(!row.isNullAt(_))
          if (m < 0) throw new Misfit(s"field `$path` has no member that is not null")
          out.putZigzag(writers(m)._1.toLong)
          writers(m)._2(row, m, out)
        }
      case _ => throw unfit(from, to, path)
    } else {
      val branch = types.lastIndexWhere(_.getType != NULL)
      if (branch < 0) orNull((_, _, _) => throw new Misfit(s"field `$path` is not null, but the contract has only null"))
      else {
        // The wider of two numbers takes both.
        val widest = types.indices.filter(types(_).getType != NULL).maxBy(b => Seq(LONG, DOUBLE).indexOf(types(b).getType))
        val write = present(from, types(widest), path)
        orNull { (values, i, out) =>
          out.putZigzag(widest.toLong)
          write(values, i, out)
        }
      }
    }
  }

  /** Writes the value at an ordinal, which is not null. */
  private def present(from: DataType, to: Schema, path: String): Writer = (from, to.getType) match {
    case (BooleanType, BOOLEAN) => (values, i, out) => out.putByte(if (values.getBoolean(i)) 1 else 0)
    case (ByteType, INT | LONG) => (values, i, out) => out.putZigzag(values.getByte(i).toLong)
    case (ShortType, INT | LONG) => (values, i, out) => out.putZigzag(values.getShort(i).toLong)
    case (IntegerType, INT | LONG) => (values, i, out) => out.putZigzag(values.getInt(i).toLong)
    case (LongType, LONG) => (values, i, out) => out.putZigzag(values.getLong(i))
    case (DateType, INT) => (values, i, out) => out.putZigzag(values.getInt(i).toLong)
    case (TimestampType | TimestampNTZType, LONG) => instant(to, path)
    case (FloatType, FLOAT) => (values, i, out) => out.putFixed32(java.lang.Float.floatToRawIntBits(values.getFloat(i)))
    case (FloatType, DOUBLE) => (values, i, out) => out.putFixed64(java.lang.Double.doubleToRawLongBits(values.getFloat(i).toDouble))
    case (DoubleType, DOUBLE) => (values, i, out) => out.putFixed64(java.lang.Double.doubleToRawLongBits(values.getDouble(i)))
    case (IntegerType, DOUBLE) => (values, i, out) => out.putFixed64(java.lang.Double.doubleToRawLongBits(values.getInt(i).toDouble))
    case (StringType, STRING | BYTES) => (values, i, out) => sized(values.getUTF8String(i).getBytes, out)
    case (StringType, ENUM) => symbol(to, path)
    case (StringType, FIXED) if to.getFixedSize == 16 => (values, i, out) => uuid(values.getUTF8String(i).toString, path, out)
    case (BinaryType, BYTES) => (values, i, out) => sized(values.getBinary(i), out)
    case (BinaryType, FIXED) => (values, i, out) =>
      val bytes = values.getBinary(i)
      if (bytes.length != to.getFixedSize) throw new Misfit(s"field `$path` has ${bytes.length} bytes, the contract ${to.getFixedSize}")
      out.putBytes(bytes)
    case (d: DecimalType, BYTES | FIXED) => decimal(d, to, path)
    case (s: StructType, RECORD) =>
      val write = fields(s, to, path + ".")
      (values, i, out) => write(values.getStruct(i, s.length), out)
    case (ArrayType(element, _), ARRAY) =>
      val write = value(element, to.getElementType, path)
      (values, i, out) => {
        val array = values.getArray(i)
        items(array.numElements(), out)(k => write(array, k, out))
      }
    case (MapType(StringType, element, _), MAP) =>
      val write = value(element, to.getValueType, path)
      (values, i, out) => {
        val map = values.getMap(i)
        val (keys, elements) = (map.keyArray(), map.valueArray())
        items(map.numElements(), out) { k =>
          sized(keys.getUTF8String(k).getBytes, out)
          write(elements, k, out)
        }
      }
    case _ => throw unfit(from, to, path)
  }

  private def unfit(from: DataType, to: Schema, path: String): IllegalArgumentException = {
    val logical = Option(to.getLogicalType).map(l => s" (${l.getName})").getOrElse("")
    new IllegalArgumentException(s"column `$path` is ${from.simpleString}, the contract's field is ${to.getType.getName}$logical")
  }

  private def items(count: Int, out: ByteWriter)(item: Int => Unit): Unit = {
    if (count > 0) out.putZigzag(count.toLong)
    var k = 0
    while (k < count) {
      item(k)
      k += 1
    }
    out.putByte(0)
  }

  private def sized(bytes: Array[Byte], out: ByteWriter): Unit = {
    out.putZigzag(bytes.length.toLong)
    out.putBytes(bytes)
  }

  private def instant(to: Schema, path: String): Writer = {
    val unit = Option(to.getLogicalType).map(_.getName).getOrElse(throw unfit(TimestampType, to, path))
    if (unit.endsWith("millis")) (values, i, out) => out.putZigzag(Math.floorDiv(values.getLong(i), 1000L))
    else if (unit.endsWith("nanos")) (values, i, out) =>
      out.putZigzag(try Math.multiplyExact(values.getLong(i), 1000L) catch {
        case _: ArithmeticException => throw new Misfit(s"field `$path` is a time that nanoseconds can't tell")
      })
    else (values, i, out) => out.putZigzag(values.getLong(i))
  }

  private def symbol(to: Schema, path: String): Writer = {
    val ordinals = to.getEnumSymbols.asScala.zipWithIndex.toMap
    (values, i, out) => {
      val text = values.getUTF8String(i).toString
      out.putZigzag(ordinals.getOrElse(text, throw new Misfit(s"field `$path` is `$text`, a symbol that the contract does not have")).toLong)
    }
  }

  private def uuid(text: String, path: String, out: ByteWriter): Unit = {
    val id = try UUID.fromString(text) catch { case _: IllegalArgumentException => throw new Misfit(s"field `$path` is no UUID") }
    out.putLong(id.getMostSignificantBits)
    out.putLong(id.getLeastSignificantBits)
  }

  private def decimal(from: DecimalType, to: Schema, path: String): Writer = {
    val logical = to.getLogicalType match {
      case d: LogicalTypes.Decimal => d
      case _ => throw unfit(from, to, path)
    }
    (values, i, out) => {
      val number = values.getDecimal(i, from.precision, from.scale).toJavaBigDecimal
      val scaled: JavaDecimal = try number.setScale(logical.getScale, RoundingMode.UNNECESSARY) catch {
        case _: ArithmeticException => throw new Misfit(s"field `$path` is $number, which the contract's ${logical.getScale} decimals can't hold")
      }
      if (scaled.precision > logical.getPrecision) throw new Misfit(s"field `$path` is $number, which ${logical.getPrecision} digits can't hold")
      val bytes = scaled.unscaledValue.toByteArray
      if (to.getType == BYTES) sized(bytes, out)
      else {
        if (bytes.length > to.getFixedSize) throw new Misfit(s"field `$path` is $number, which ${to.getFixedSize} bytes can't hold")
        val sign = if (scaled.signum < 0) -1 else 0
        (bytes.length until to.getFixedSize).foreach(_ => out.putByte(sign))
        out.putBytes(bytes)
      }
    }
  }
}
