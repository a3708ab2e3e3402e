package org.apache.spark.sql.headrace

import java.nio.charset.StandardCharsets.{US_ASCII, UTF_8}
import java.time.LocalDate
import java.util.Base64

import com.fasterxml.jackson.core.io.NumberOutput

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.TypeCheckResult
import org.apache.spark.sql.catalyst.expressions.{Expression, SpecializedGetters, UnaryExpression}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.catalyst.expressions.json.StructsToJsonEvaluator
import org.apache.spark.sql.catalyst.json.JacksonUtils
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * A struct as JSON bytes, in the form of Spark's `to_json`: null fields are left out, timestamps are ISO 8601 in UTC with milliseconds. Written
 * straight from the row's own bytes; it and [[IsoTime]] exist because `to_json` cost several times the operator before it. Types that it does not
 * know are left to `to_json`.
 */
case class JsonEncode(child: Expression) extends UnaryExpression {
  override def dataType: DataType = BinaryType
  @transient private lazy val schema = child.dataType.asInstanceOf[StructType]
  @transient private lazy val writer = if (JsonEncode.supports(schema)) new JsonRowWriter(schema) else null
  @transient private lazy val fallback = StructsToJsonEvaluator(Map.empty, schema, Some("UTC"))

  override def checkInputDataTypes(): TypeCheckResult =
    if (JsonEncode.supports(child.dataType)) TypeCheckResult.TypeCheckSuccess else JacksonUtils.verifyType("to_json", child.dataType)

  def encode(row: InternalRow): Array[Byte] =
    if (writer != null) writer.write(row) else fallback.evaluate(row).asInstanceOf[UTF8String].getBytes

  override protected def nullSafeEval(value: Any): Any = encode(value.asInstanceOf[InternalRow])

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val self = ctx.addReferenceObj("jsonEncode", this)
    defineCodeGen(ctx, ev, row => s"$self.encode($row)")
  }

  override protected def withNewChildInternal(newChild: Expression): JsonEncode = copy(child = newChild)
}

object JsonEncode {
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
    case StringType => (row, i) => string(row.getUTF8String(i))
    case LongType => (row, i) => out.putDigits(row.getLong(i))
    case IntegerType => (row, i) => out.putDigits(row.getInt(i).toLong)
    case ShortType => (row, i) => out.putDigits(row.getShort(i).toLong)
    case ByteType => (row, i) => out.putDigits(row.getByte(i).toLong)
    // The shortest text that gives the same number again, which `toString` gives from Java 19 on.
    case DoubleType => (row, i) =>
      val d = row.getDouble(i)
      if (!fewDecimals(d)) number(NumberOutput.toString(d, true), java.lang.Double.isFinite(d))
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
          string(keys.getUTF8String(k))
          out.putByte(':')
          if (values.isNullAt(k)) ascii("null") else writer(values, k)
          k += 1
        }
        out.putByte('}')
      }
  }

  private def number(text: String, finite: Boolean): Unit = ascii(if (finite) text else "\"" + text + "\"")

  private def ascii(text: String): Unit = out.putBytes(text.getBytes(US_ASCII))

  /**
   * Writes a number that has six decimals at most and is of ordinary size, or says that this is not one. Such a decimal has no more than fifteen
   * digits: no other one that short is the same double, so it is the shortest. The layout is that of Java: a point, and a digit on each side of it.
   */
  private def fewDecimals(d: Double): Boolean = {
    val size = math.abs(d)
    if (!(size >= 1e-3 && size < 1e7)) return false
    val millionths = math.rint(size * 1e6)
    if (millionths / 1e6 != size) return false
    if (d < 0) out.putByte('-')
    val whole = millionths.toLong / 1000000L
    var rest = (millionths.toLong - whole * 1000000L).toInt
    out.putDigits(whole)
    out.putByte('.')
    var place = 100000
    do {
      val digit = rest / place
      out.putByte('0' + digit)
      rest -= digit * place
      place /= 10
    } while (rest > 0)
    true
  }

  /** What is no UTF-8 comes as `to_json` has it: U+FFFD. */
  private def string(text: UTF8String): Unit = {
    out.putByte('"')
    val start = out.position
    out.putText(text)
    val end = out.position
    // Negative once there was a byte that is no ASCII.
    var all = 0
    var i = start
    while (i < end && { val b = out.byteAt(i); all |= b; !isSpecial(b) }) i += 1
    if (i == end && (all >= 0 || text.isValid)) out.putByte('"')
    else { out.rewind(start - 1); string(if (text.isValid) text.getBytes else text.toString.getBytes(UTF_8)) }
  }

  private def isSpecial(b: Byte): Boolean = (b >= 0 && b < 0x20) || b == '"' || b == '\\'

  /** A JSON string from UTF-8 bytes: only quotes, backslashes and control characters change, and these are single bytes. */
  private def string(utf8: Array[Byte]): Unit = {
    out.putByte('"')
    var start = 0
    var i = 0
    while (i < utf8.length) {
      val b = utf8(i)
      if (isSpecial(b)) {
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
