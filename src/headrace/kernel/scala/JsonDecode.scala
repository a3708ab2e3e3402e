package org.apache.spark.sql.headrace

import java.util.{Base64, HashMap}

import scala.collection.mutable.ArrayBuffer

import com.fasterxml.jackson.core.{JsonFactory, JsonParser, JsonProcessingException, JsonToken, StreamReadFeature}
import com.fasterxml.jackson.core.exc.InputCoercionException

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, GenericInternalRow, UnaryExpression}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.catalyst.util.{ArrayBasedMapData, DateTimeUtils, GenericArrayData}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * JSON bytes as a struct of the schema's fields plus one more, the reason: null, or why the payload is no row of the schema (then all
 * other fields are null). Never throws on data. A null payload is a null struct.
 *
 * Why not `from_json`: it can't say which field was wrong, and turning bytes into characters first made it the largest single cost
 * of a replay. What is taken for which type follows `from_json`, but a field of the wrong type fails the whole payload, and a number
 * beyond a double's range is no double. Fields that the schema lacks are skipped; of a field that comes twice the last counts.
 */
case class JsonDecode(child: Expression, schema: StructType, reason: String) extends UnaryExpression {
  override def dataType: DataType = schema.add(reason, StringType)
  /** A filter that Spark pushed below it would decode once more. */
  override def expensive: Boolean = true
  @transient private lazy val reader = new JsonRowReader(schema)

  def decode(bytes: Array[Byte]): InternalRow = reader.read(bytes)

  override protected def nullSafeEval(value: Any): Any = decode(value.asInstanceOf[Array[Byte]])

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val self = ctx.addReferenceObj("jsonDecode", this)
    defineCodeGen(ctx, ev, bytes => s"$self.decode($bytes)")
  }

  override protected def withNewChildInternal(newChild: Expression): JsonDecode = copy(child = newChild)
}

private final class JsonRowReader(schema: StructType) {
  private val factory = new JsonFactory().enable(StreamReadFeature.USE_FAST_DOUBLE_PARSER.mappedFeature)
  private val width = schema.length
  private val root = new StructReader(schema, "")
  private val scanner = new JsonScanner(schema, width + 1)

  def read(bytes: Array[Byte]): InternalRow =
    try parse(bytes, 0) catch {
      case misfit: Misfit =>
        val row = new GenericInternalRow(width + 1)
        row.update(width, UTF8String.fromString(misfit.getMessage))
        row
    }

  /** The row of what is there from that byte on, with one slot more than the schema has; a [[Misfit]] if there is none. */
  def parse(bytes: Array[Byte], from: Int): InternalRow = {
    val scanned = scanner.read(bytes, from)
    if (scanned != null) scanned else parseAny(bytes, from)
  }

  private def parseAny(bytes: Array[Byte], from: Int): InternalRow = {
    def refuse(reason: String): Nothing = {
      val text = UTF8String.fromBytes(bytes, from, bytes.length - from)
      throw new Misfit(if (text.isValid) reason else "the payload is not UTF-8 text")
    }
    try {
      val parser = factory.createParser(bytes, from, bytes.length - from)
      try {
        if (parser.nextToken() != JsonToken.START_OBJECT) throw new Misfit("the payload is not a JSON object")
        val row = root.read(parser, width + 1)
        if (parser.nextToken() != null) throw new Misfit("the payload is not one JSON object: something follows it")
        row
      } finally parser.close()
    } catch {
      case misfit: Misfit => refuse(misfit.getMessage)
      case _: JsonProcessingException => refuse("the payload is not a JSON object")
      case _: java.io.IOException => refuse("the payload is not UTF-8 text")
    }
  }

  /** Reads the value that the parser stands on. */
  private abstract class Reader {
    def read(parser: JsonParser): Any
  }

  private final class StructReader(schema: StructType, path: String) extends Reader {
    private val names = schema.fieldNames.map(_.intern())
    private val index = new HashMap[String, Integer]
    names.zipWithIndex.foreach { case (name, i) => index.put(name, i) }
    private val readers = schema.fields.map(f => readerOf(f.dataType, path + f.name))

    override def read(parser: JsonParser): Any = read(parser, schema.length)

    def read(parser: JsonParser, slots: Int): InternalRow = {
      val row = new GenericInternalRow(slots)
      var likely = 0
      while (parser.nextToken() == JsonToken.FIELD_NAME) {
        val i = indexOf(parser.currentName(), likely)
        val token = parser.nextToken()
        if (i < 0) parser.skipChildren()
        else {
          row.update(i, if (token == JsonToken.VALUE_NULL) null else readers(i).read(parser))
          likely = i + 1
        }
      }
      row
    }

    /** Fields mostly come in the order of the schema, and Jackson gives the same string for the same name. */
    private def indexOf(name: String, likely: Int): Int =
      if (likely < names.length && (name eq names(likely))) likely
      else { val i = index.get(name); if (i == null) -1 else i }
  }

  private def readerOf(dataType: DataType, path: String): Reader = {
    def misfit(): Nothing = throw new Misfit(s"field `$path` is not a ${dataType.simpleString}")
    def scalar(take: PartialFunction[JsonToken, JsonParser => Any]): Reader = new Reader {
      override def read(parser: JsonParser): Any = {
        val value = try take.applyOrElse(parser.currentToken(), (_: JsonToken) => misfit())(parser) catch {
          // A number that does not fit: Jackson's own word for it, or that of the arithmetic here.
          case _: InputCoercionException | _: ArithmeticException => misfit()
        }
        if (value == null) misfit() else value
      }
    }
    def whole(least: Long, most: Long, box: Long => Any): Reader = scalar {
      case JsonToken.VALUE_NUMBER_INT => p => val n = p.getLongValue; if (n < least || n > most) null else box(n)
    }
    dataType match {
      case StringType => new Reader { override def read(parser: JsonParser): Any = UTF8String.fromString(text(parser)) }
      case LongType => whole(Long.MinValue, Long.MaxValue, n => n)
      case IntegerType => whole(Int.MinValue, Int.MaxValue, _.toInt)
      case ShortType => whole(Short.MinValue, Short.MaxValue, _.toShort)
      case ByteType => whole(Byte.MinValue, Byte.MaxValue, _.toByte)
      case DoubleType => scalar {
        case JsonToken.VALUE_NUMBER_FLOAT | JsonToken.VALUE_NUMBER_INT => p =>
          val d = p.getDoubleValue; if (d.isInfinite) null else d
        case JsonToken.VALUE_STRING => p => special(p.getText)
      }
      case FloatType => scalar {
        case JsonToken.VALUE_NUMBER_FLOAT | JsonToken.VALUE_NUMBER_INT => p =>
          val f = p.getFloatValue; if (f.isInfinite) null else f
        case JsonToken.VALUE_STRING => p => val d = special(p.getText); if (d == null) null else d.asInstanceOf[Double].toFloat
      }
      case BooleanType => scalar {
        case JsonToken.VALUE_TRUE => _ => true
        case JsonToken.VALUE_FALSE => _ => false
      }
      case d: DecimalType => scalar {
        case JsonToken.VALUE_NUMBER_FLOAT | JsonToken.VALUE_NUMBER_INT => p => decimal(p.getDecimalValue, d)
      }
      case TimestampType => scalar {
        case JsonToken.VALUE_STRING => p => IsoTime.parse(p.getText)
        case JsonToken.VALUE_NUMBER_INT => p => Math.multiplyExact(p.getLongValue, 1000000L)
      }
      case TimestampNTZType => scalar {
        case JsonToken.VALUE_STRING => p =>
          DateTimeUtils.stringToTimestampWithoutTimeZone(UTF8String.fromString(p.getText)).map(Long.box).orNull
      }
      case DateType => scalar {
        case JsonToken.VALUE_STRING => p => DateTimeUtils.stringToDate(UTF8String.fromString(p.getText)).map(Int.box).orNull
      }
      case BinaryType => scalar { case JsonToken.VALUE_STRING => p => base64(p.getText) }
      case ArrayType(element, _) => arrayReader(readerOf(element, path), () => misfit())
      case MapType(StringType, value, _) => mapReader(readerOf(value, path), () => misfit())
      case s: StructType =>
        val reader = new StructReader(s, path + ".")
        new Reader {
          override def read(parser: JsonParser): Any =
            if (parser.currentToken() == JsonToken.START_OBJECT) reader.read(parser) else misfit()
        }
      case other => throw new IllegalArgumentException(s"JSON can't be read as ${other.simpleString} (field `$path`)")
    }
  }

  /**
   * Rounded half up, or null if it does not fit. How large the number is must be seen before anything is computed: 1e500000000 is short to
   * write and has half a billion digits, which would take a task minutes, or all of its memory.
   */
  private def decimal(number: java.math.BigDecimal, to: DecimalType): Decimal = {
    // The number is less than ten to this power, and no less than a tenth of that.
    val power = number.precision.toLong - number.scale
    if (number.signum == 0 || power < -to.scale) Decimal(0L, to.precision, to.scale)
    else if (power > to.precision - to.scale) null
    else {
      val value = Decimal(number)
      if (value.changePrecision(to.precision, to.scale)) value else null
    }
  }

  private def base64(text: String): Array[Byte] =
    try Base64.getDecoder.decode(text) catch { case _: IllegalArgumentException => null }

  private def special(text: String): Any = text match {
    case "NaN" => Double.NaN
    case "Infinity" | "+Infinity" | "INF" | "+INF" => Double.PositiveInfinity
    case "-Infinity" | "-INF" => Double.NegativeInfinity
    case _ => null
  }

  /** As `from_json`: what is no string comes as its JSON text. */
  private def text(parser: JsonParser): String =
    if (parser.currentToken().isScalarValue) parser.getText
    else {
      val writer = new java.io.StringWriter
      val generator = factory.createGenerator(writer)
      generator.copyCurrentStructure(parser)
      generator.close()
      writer.toString
    }

  private def arrayReader(element: Reader, misfit: () => Nothing): Reader = new Reader {
    override def read(parser: JsonParser): Any = {
      if (parser.currentToken() != JsonToken.START_ARRAY) misfit()
      val values = new ArrayBuffer[Any]
      var token = parser.nextToken()
      while (token != JsonToken.END_ARRAY) {
        values += (if (token == JsonToken.VALUE_NULL) null else element.read(parser))
        token = parser.nextToken()
      }
      new GenericArrayData(values.toArray[Any])
    }
  }

  private def mapReader(value: Reader, misfit: () => Nothing): Reader = new Reader {
    override def read(parser: JsonParser): Any = {
      if (parser.currentToken() != JsonToken.START_OBJECT) misfit()
      val entries = new java.util.LinkedHashMap[UTF8String, Any]
      while (parser.nextToken() == JsonToken.FIELD_NAME) {
        val name = UTF8String.fromString(parser.currentName())
        entries.put(name, if (parser.nextToken() == JsonToken.VALUE_NULL) null else value.read(parser))
      }
      ArrayBasedMapData(entries.keySet().toArray.asInstanceOf[Array[Any]], entries.values().toArray.asInstanceOf[Array[Any]])
    }
  }
}
