package org.apache.spark.sql.headrace

import java.math.{BigDecimal => JavaDecimal, RoundingMode}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * Rows as Protobuf messages of the contract. What can't fit at all is an IllegalArgumentException when it is made; a null where a field
 * has no presence, or a value that an enum or an unsigned number does not have, is a [[Misfit]] of its row. A field without a column is
 * absent. Defaults are not written, as the language has it.
 */
private[headrace] final class ProtoEncode(row: StructType, message: ProtoMessage) extends PayloadWriter {
  /** Writes the value at an ordinal, which is not null, without its tag. */
  private type Body = (SpecializedGetters, Int, ByteWriter) => Unit
  private type Fields = (SpecializedGetters, ByteWriter) => Unit
  private val body = fields(row, message.fields, "")

  override def write(values: InternalRow, out: ByteWriter): Unit = {
    WireFormat.writeMessagePath(message.path, out)
    body(values, out)
  }

  private def fields(struct: StructType, of: Array[ProtoField], prefix: String): Fields = {
    struct.fieldNames.find(name => !of.exists(_.name == name)).foreach(name =>
      throw new IllegalArgumentException(s"column `$prefix$name` is no field of the contract"))
    of.find(f => f.required && struct.getFieldIndex(f.name).isEmpty).foreach(f =>
      throw new IllegalArgumentException(s"the contract requires field `$prefix${f.name}` and the stream has no such column"))
    val writers = of.sortBy(_.number).flatMap(f => struct.getFieldIndex(f.name).map(at => field(struct(at).dataType, at, f, prefix + f.name)))
    (values, out) => {
      var i = 0
      while (i < writers.length) {
        writers(i)(values, out)
        i += 1
      }
    }
  }

  private def field(from: DataType, at: Int, to: ProtoField, path: String): Fields = (from, to.of) match {
    case (ArrayType(element, _), ProtoArray(of, packed)) => array(element, of, packed && wire(of) != 2, at, to.number, path)
    case (MapType(key, value, _), ProtoMap(ofKey, ofValue)) => map(key, value, ofKey, ofValue, at, to.number, path)
    case _ =>
      val write = present(from, to.of, path)
      val tag = tagOf(to.number, wire(to.of))
      val isDefault = if (to.presence || to.required) null else defaultTest(from, to.of)
      (values, out) =>
        if (values.isNullAt(at)) {
          if (!to.presence || to.required) throw new Misfit(s"field `$path` is null, but the contract has no null there")
        } else if (isDefault == null || !isDefault(values, at)) {
          out.putVarint(tag)
          write(values, at, out)
        }
  }

  private def array(element: DataType, of: ProtoType, packed: Boolean, at: Int, number: Int, path: String): Fields = {
    val write = present(element, of, path)
    val tag = tagOf(number, if (packed) 2 else wire(of))
    (values, out) => if (!values.isNullAt(at)) {
      val items = values.getArray(at)
      val n = items.numElements()
      if ((0 until n).exists(items.isNullAt)) throw new Misfit(s"field `$path` has a null element, which Protobuf can't have")
      if (packed && n > 0) {
        out.putVarint(tag)
        sized(out)(inner => (0 until n).foreach(k => write(items, k, inner)))
      } else if (!packed) (0 until n).foreach { k =>
        out.putVarint(tag)
        write(items, k, out)
      }
    }
  }

  private def map(key: DataType, value: DataType, ofKey: ProtoType, ofValue: ProtoType, at: Int, number: Int, path: String): Fields = {
    val (writeKey, writeValue) = (present(key, ofKey, path), present(value, ofValue, path))
    val (keyTag, valueTag, tag) = (tagOf(1, wire(ofKey)), tagOf(2, wire(ofValue)), tagOf(number, 2))
    (values, out) => if (!values.isNullAt(at)) {
      val entries = values.getMap(at)
      val (keys, elements) = (entries.keyArray(), entries.valueArray())
      (0 until entries.numElements()).foreach { k =>
        if (elements.isNullAt(k)) throw new Misfit(s"field `$path` has a null value, which Protobuf can't have")
        out.putVarint(tag)
        sized(out) { inner =>
          inner.putVarint(keyTag)
          writeKey(keys, k, inner)
          inner.putVarint(valueTag)
          writeValue(elements, k, inner)
        }
      }
    }
  }

  private def tagOf(number: Int, wireType: Int): Long = (number.toLong << 3) | wireType

  private def sized(out: ByteWriter)(write: ByteWriter => Unit): Unit = {
    val inner = new ByteWriter(64)
    write(inner)
    out.putVarint(inner.position.toLong)
    out.putBytes(inner.toBytes)
  }

  private def wire(of: ProtoType): Int = of match {
    case ProtoScalar("double" | "fixed64" | "sfixed64") => 1
    case ProtoScalar("float" | "fixed32" | "sfixed32") => 5
    case ProtoScalar("string" | "bytes") => 2
    case _: ProtoScalar | _: ProtoEnum => 0
    case _ => 2
  }

  private def present(from: DataType, to: ProtoType, path: String): Body = to match {
    case ProtoEnum(_, names) if from == StringType =>
      val numbers = names.map(_.swap)
      (values, i, out) => out.putVarint(enumNumber(values.getUTF8String(i).toString, numbers, path).toLong)
    case ProtoStruct(inner) if from.isInstanceOf[StructType] =>
      val struct = from.asInstanceOf[StructType]
      val write = fields(struct, inner, path + ".")
      (values, i, out) => sized(out)(write(values.getStruct(i, struct.length), _))
    case ProtoWrapper(value) =>
      val write = present(from, value, path)
      val tag = tagOf(1, wire(value))
      (values, i, out) => sized(out) { inner => inner.putVarint(tag); write(values, i, inner) }
    case ProtoTimestamp if from == TimestampType => (values, i, out) =>
      val micros = values.getLong(i)
      sized(out) { inner =>
        val (seconds, nanos) = (Math.floorDiv(micros, 1000000L), Math.floorMod(micros, 1000000L) * 1000)
        if (seconds != 0) { inner.putVarint(tagOf(1, 0)); inner.putVarint(seconds) }
        if (nanos != 0) { inner.putVarint(tagOf(2, 0)); inner.putVarint(nanos) }
      }
    case ProtoScalar(kind) => scalar(from, kind, path)
    case _ => throw new IllegalArgumentException(s"column `$path` is ${from.simpleString}, which the contract's field can't hold")
  }

  private def scalar(from: DataType, kind: String, path: String): Body = {
    lazy val number: (SpecializedGetters, Int) => Long = from match {
      case ByteType => (values, i) => values.getByte(i).toLong
      case ShortType => (values, i) => values.getShort(i).toLong
      case IntegerType => (values, i) => values.getInt(i).toLong
      case LongType => (values, i) => values.getLong(i)
      case _ => unfit()
    }
    def unfit(): Nothing = throw new IllegalArgumentException(s"column `$path` is ${from.simpleString}, the contract's field is $kind")
    def within32(): Unit = if (from == LongType) unfit()
    def unsigned(values: SpecializedGetters, i: Int, most: Long): Long = {
      val n = number(values, i)
      if (n < 0 || n > most) throw new Misfit(s"field `$path` is $n, which the contract's $kind can't hold") else n
    }
    (from, kind) match {
      case (DoubleType, "double") => (values, i, out) => out.putFixed64(java.lang.Double.doubleToRawLongBits(values.getDouble(i)))
      case (FloatType, "double") => (values, i, out) => out.putFixed64(java.lang.Double.doubleToRawLongBits(values.getFloat(i).toDouble))
      case (FloatType, "float") => (values, i, out) => out.putFixed32(java.lang.Float.floatToRawIntBits(values.getFloat(i)))
      case (BooleanType, "bool") => (values, i, out) => out.putByte(if (values.getBoolean(i)) 1 else 0)
      case (StringType, "string") => (values, i, out) => bytes(values.getUTF8String(i).getBytes, out)
      case (BinaryType, "bytes") => (values, i, out) => bytes(values.getBinary(i), out)
      case (d: DecimalType, "uint64" | "fixed64") => (values, i, out) =>
        val n = whole(values.getDecimal(i, d.precision, d.scale).toJavaBigDecimal, path)
        if (kind == "uint64") out.putVarint(n) else out.putFixed64(n)
      case (_, "int64") => number; (values, i, out) => out.putVarint(number(values, i))
      case (_, "sint64") => number; (values, i, out) => out.putZigzag(number(values, i))
      case (_, "sfixed64") => number; (values, i, out) => out.putFixed64(number(values, i))
      case (_, "uint64") => number; (values, i, out) => out.putVarint(unsigned(values, i, Long.MaxValue))
      case (_, "fixed64") => number; (values, i, out) => out.putFixed64(unsigned(values, i, Long.MaxValue))
      case (_, "uint32") => number; (values, i, out) => out.putVarint(unsigned(values, i, 0xffffffffL))
      case (_, "fixed32") => number; (values, i, out) => out.putFixed32(unsigned(values, i, 0xffffffffL).toInt)
      case (_, "int32") => within32(); number; (values, i, out) => out.putVarint(number(values, i))
      case (_, "sint32") => within32(); number; (values, i, out) => out.putZigzag(number(values, i))
      case (_, "sfixed32") => within32(); number; (values, i, out) => out.putFixed32(number(values, i).toInt)
      case _ => unfit()
    }
  }

  private def bytes(value: Array[Byte], out: ByteWriter): Unit = {
    out.putVarint(value.length.toLong)
    out.putBytes(value)
  }

  private def whole(number: JavaDecimal, path: String): Long = {
    val integer = try number.setScale(0, RoundingMode.UNNECESSARY).toBigInteger catch {
      case _: ArithmeticException => throw new Misfit(s"field `$path` is $number, no whole number")
    }
    if (integer.signum < 0 || integer.bitLength > 64) throw new Misfit(s"field `$path` is $number, which 64 bits without a sign can't hold")
    integer.longValue
  }

  private def enumNumber(text: String, numbers: Map[String, Int], path: String): Int =
    numbers.getOrElse(text, text.toIntOption.getOrElse(throw new Misfit(s"field `$path` is `$text`, a value that the contract does not have")))

  /** Whether a value is the default of a field without presence, which is not written. */
  private def defaultTest(from: DataType, to: ProtoType): (SpecializedGetters, Int) => Boolean = (from, to) match {
    case (StringType, ProtoEnum(_, names)) =>
      val zero = UTF8String.fromString(names.getOrElse(0, "0"))
      (values, i) => values.getUTF8String(i) == zero
    case (StringType, _) => (values, i) => values.getUTF8String(i).numBytes == 0
    case (BinaryType, _) => (values, i) => values.getBinary(i).length == 0
    case (BooleanType, _) => (values, i) => !values.getBoolean(i)
    case (DoubleType, _) => (values, i) => java.lang.Double.doubleToRawLongBits(values.getDouble(i)) == 0
    case (FloatType, _) => (values, i) => java.lang.Float.floatToRawIntBits(values.getFloat(i)) == 0
    case (LongType, _) => (values, i) => values.getLong(i) == 0
    case (IntegerType, _) => (values, i) => values.getInt(i) == 0
    case (d: DecimalType, _) => (values, i) => values.getDecimal(i, d.precision, d.scale).toJavaBigDecimal.signum == 0
    case _ => null
  }
}
