package org.apache.spark.sql.headrace

import java.nio.charset.StandardCharsets.US_ASCII
import java.time.LocalDate
import java.util.Base64

import com.fasterxml.jackson.core.io.NumberOutput

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, SpecializedGetters, UnaryExpression}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.types._

/**
 * A struct as JSON bytes, in the form of Spark's `to_json`: null fields are left out, timestamps are ISO 8601 in UTC with milliseconds. Written
 * straight from the row's own bytes; it and [[IsoTime]] exist because `to_json` cost several times the operator before it.
 */
case class JsonEncode(child: Expression) extends UnaryExpression {
  override def dataType: DataType = BinaryType
  @transient private lazy val writer = new JsonRowWriter(child.dataType.asInstanceOf[StructType])

  def encode(row: InternalRow): Array[Byte] = writer.write(row)

  override protected def nullSafeEval(value: Any): Any = encode(value.asInstanceOf[InternalRow])

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val self = ctx.addReferenceObj("jsonEncode", this)
    defineCodeGen(ctx, ev, row => s"$self.encode($row)")
  }

  override protected def withNewChildInternal(newChild: Expression): JsonEncode = copy(child = newChild)
}

object JsonEncode {
  /** Types that this writer does not know are left to `to_json`. */
  def supports(dataType: DataType): Boolean = dataType match {
    case s: StructType => s.forall(f => supports(f.dataType))
    case ArrayType(element, _) => supports(element)
    case MapType(StringType, value, _) => supports(value)
    case StringType | BooleanType | ByteType | ShortType | IntegerType | LongType | FloatType | DoubleType => true
    case _: DecimalType | TimestampType | DateType | BinaryType => true
    case _ => false
  }
}

/** Writes the value at an ordinal. No function, which would take the ordinal as an object. */
private abstract class FieldWriter { def apply(row: SpecializedGetters, i: Int): Unit }

private final class JsonRowWriter(schema: StructType) {
  private val out = new ByteWriter(512)
  private val root = structWriter(schema)

  def write(row: InternalRow): Array[Byte] = {
    out.clear()
    root(row)
    out.toBytes
  }

  private def structWriter(schema: StructType): SpecializedGetters => Unit = {
    val names = schema.fieldNames.map(name => (quoted(name) + ":").getBytes("UTF-8"))
    val writers = schema.fields.map(f => writerOf(f.dataType))
    row => {
      out.putByte('{')
      var first = true
      var i = 0
      while (i < names.length) {
        if (!row.isNullAt(i)) {
          if (first) first = false else out.putByte(',')
          out.putBytes(names(i))
          writers(i)(row, i)
        }
        i += 1
      }
      out.putByte('}')
    }
  }

  /** Writes the value at an ordinal, which is not null. */
  private def writerOf(dataType: DataType): FieldWriter = dataType match {
    case StringType => (row, i) => string(row.getUTF8String(i).getBytes)
    case LongType => (row, i) => ascii(java.lang.Long.toString(row.getLong(i)))
    case IntegerType => (row, i) => ascii(Integer.toString(row.getInt(i)))
    case ShortType => (row, i) => ascii(Integer.toString(row.getShort(i).toInt))
    case ByteType => (row, i) => ascii(Integer.toString(row.getByte(i).toInt))
    // The shortest text that gives the same number again, which `toString` gives from Java 19 on.
    case DoubleType => (row, i) => val d = row.getDouble(i); number(NumberOutput.toString(d, true), java.lang.Double.isFinite(d))
    case FloatType => (row, i) => val f = row.getFloat(i); number(NumberOutput.toString(f, true), java.lang.Float.isFinite(f))
    case BooleanType => (row, i) => ascii(if (row.getBoolean(i)) "true" else "false")
    case d: DecimalType => (row, i) => ascii(row.getDecimal(i, d.precision, d.scale).toJavaBigDecimal.toPlainString)
    case TimestampType => (row, i) => out.putByte('"'); IsoTime.write(row.getLong(i), out); out.putByte('"')
    case DateType => (row, i) => ascii("\"" + LocalDate.ofEpochDay(row.getInt(i).toLong) + "\"")
    case BinaryType => (row, i) => ascii("\"" + Base64.getEncoder.encodeToString(row.getBinary(i)) + "\"")
    case s: StructType =>
      val writer = structWriter(s)
      (row, i) => writer(row.getStruct(i, s.length))
    case ArrayType(element, _) =>
      val writer = writerOf(element)
      (row, i) => {
        val array = row.getArray(i)
        out.putByte('[')
        var k = 0
        while (k < array.numElements()) {
          if (k > 0) out.putByte(',')
          if (array.isNullAt(k)) ascii("null") else writer(array, k)
          k += 1
        }
        out.putByte(']')
      }
    case MapType(StringType, value, _) =>
      val writer = writerOf(value)
      (row, i) => {
        val map = row.getMap(i)
        val keys = map.keyArray()
        val values = map.valueArray()
        out.putByte('{')
        var k = 0
        while (k < map.numElements()) {
          if (k > 0) out.putByte(',')
          string(keys.getUTF8String(k).getBytes)
          out.putByte(':')
          if (values.isNullAt(k)) ascii("null") else writer(values, k)
          k += 1
        }
        out.putByte('}')
      }
  }

  private def number(text: String, finite: Boolean): Unit = ascii(if (finite) text else "\"" + text + "\"")

  private def ascii(text: String): Unit = out.putBytes(text.getBytes(US_ASCII))

  /** A JSON string from UTF-8 bytes: only quotes, backslashes and control characters change, and these are single bytes. */
  private def string(utf8: Array[Byte]): Unit = {
    out.putByte('"')
    var start = 0
    var i = 0
    while (i < utf8.length) {
      val b = utf8(i)
      if ((b >= 0 && b < 0x20) || b == '"' || b == '\\') {
        out.putBytes(utf8, start, i - start)
        escape(b)
        start = i + 1
      }
      i += 1
    }
    out.putBytes(utf8, start, utf8.length - start)
    out.putByte('"')
  }

  private def escape(b: Byte): Unit = b match {
    case '"' => ascii("\\\"")
    case '\\' => ascii("\\\\")
    case '\n' => ascii("\\n")
    case '\r' => ascii("\\r")
    case '\t' => ascii("\\t")
    case '\b' => ascii("\\b")
    case '\f' => ascii("\\f")
    case other => ascii(f"\\u${other.toInt}%04X")
  }

  private def quoted(name: String): String = {
    string(name.getBytes("UTF-8"))
    val text = new String(out.toBytes, "UTF-8")
    out.clear()
    text
  }
}
