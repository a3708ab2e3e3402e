package org.apache.spark.sql.headrace

import java.nio.charset.StandardCharsets.{ISO_8859_1, UTF_8}
import java.util.Arrays

import com.fasterxml.jackson.core.io.NumberInput

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * Reads JSON objects as nearly all events have them: flat, strings without escapes, numbers of ordinary size, times in UTC. It takes what it
 * understands straight from the bytes, and gives up on everything else, also on what is wrong: then the whole payload is [[JsonRowReader]]'s, which
 * knows the rest and finds the reasons. What it takes it must read just as that one does; a test compares them.
 */
private[headrace] final class JsonScanner(schema: StructType, slots: Int) {
  import JsonScanner._

  private val names = schema.fieldNames.map(_.getBytes(UTF_8))
  private val types = schema.fields.map(_.dataType)
  private val useful = schema.forall(f => reads(f.dataType)) && names.forall(_.forall(isPlain))

  private var in: Array[Byte] = _
  private var at = 0

  /** The row of what is there from that byte on, or null: ask somebody else. */
  def read(bytes: Array[Byte], from: Int): InternalRow = if (!useful || bytes.length > MostBytes) null else {
    in = bytes
    at = from
    val row = new DecodedRow(slots)
    if (readObject(row) && skip() == End) row else null
  }

  private def readObject(row: DecodedRow): Boolean = {
    if (skip() != '{') return false
    at += 1
    if (skip() == '}') { at += 1; return true }
    var likely = 0
    while (true) {
      if (skip() != '"') return false
      at += 1
      val i = field(likely)
      if (i == GaveUp || skip() != ':') return false
      at += 1
      val first = skip()
      if (!(if (i == Unknown) pass(first) else value(first, row, i))) return false
      if (i != Unknown) likely = i + 1
      val after = skip()
      at += 1
      if (after == '}') return true
      if (after != ',') return false
    }
    false
  }

  /** The next byte that is not white space. */
  private def skip(): Int = {
    while (at < in.length) {
      val b = in(at)
      if (b != ' ' && b != '\n' && b != '\r' && b != '\t') return b
      at += 1
    }
    End
  }

  /** Which field is named here; fields mostly come in the order of the schema. */
  private def field(likely: Int): Int =
    if (likely < names.length && isNamed(likely)) { at += names(likely).length + 1; likely }
    else {
      val start = at
      if (!toQuote()) GaveUp
      else {
        var i = 0
        while (i < names.length && !Arrays.equals(names(i), 0, names(i).length, in, start, at - 1)) i += 1
        if (i < names.length) i else Unknown
      }
    }

  private def isNamed(i: Int): Boolean = {
    val name = names(i)
    val end = at + name.length
    end < in.length && in(end) == '"' && Arrays.equals(name, 0, name.length, in, at, end)
  }

  /** Behind the quote that ends the string; false if there is more to the string than its bytes. */
  private def toQuote(): Boolean = {
    val start = at
    var ascii = true
    while (at < in.length) {
      val b = in(at)
      at += 1
      if (b == '"') return ascii || UTF8String.fromBytes(in, start, at - 1 - start).isValid
      if (b == '\\' || (b >= 0 && b < ' ')) return false
      if (b < 0) ascii = false
    }
    false
  }

  private def value(first: Int, row: DecodedRow, i: Int): Boolean =
    if (first == 'n') { row.setNullAt(i); literal(Null) }
    else types(i) match {
      case StringType => first == '"' && {
        at += 1
        val start = at
        toQuote() && { row.update(i, UTF8String.fromBytes(in, start, at - 1 - start)); true }
      }
      case TimestampType => first == '"' && {
        at += 1
        val start = at
        toQuote() && {
          val micros = IsoTime.parseUtc(in, start, at - 1)
          micros != IsoTime.Unusual && { row.setLong(i, micros); true }
        }
      }
      case DoubleType => number() && {
        val d = double
        !d.isInfinite && { row.setDouble(i, d); true }
      }
      case LongType => whole() && { row.setLong(i, signed); true }
      case IntegerType => whole() && signed.isValidInt && { row.setInt(i, signed.toInt); true }
      case ShortType => whole() && signed.isValidShort && { row.update(i, signed.toShort); true }
      case ByteType => whole() && signed.isValidByte && { row.update(i, signed.toByte); true }
      case BooleanType =>
        if (first == 't') { row.update(i, true); literal(True) } else { row.update(i, false); literal(False) }
    }

  /** A value that nobody asked for. */
  private def pass(first: Int): Boolean = first match {
    case '"' => at += 1; toQuote()
    case 'n' => literal(Null)
    case 't' => literal(True)
    case 'f' => literal(False)
    case _ => number()
  }

  private def literal(word: Array[Byte]): Boolean = {
    val start = at
    at += word.length
    at <= in.length && Arrays.equals(word, 0, word.length, in, start, at)
  }

  // The number that was read last: its first byte, sign, digits as one integer (while they fit), how many of them, and how many after the point.
  private var numberAt = 0
  private var negative = false
  private var digits = 0L
  private var count = 0
  private var decimals = 0
  private var exponent = false

  private def signed: Long = if (negative) -digits else digits

  /** A number that is an integer, and small enough for a long. */
  private def whole(): Boolean = number() && !exponent && decimals == 0 && count <= MostDigits

  private def number(): Boolean = {
    numberAt = at
    negative = at < in.length && in(at) == '-'
    if (negative) at += 1
    digits = 0L
    count = 0
    decimals = 0
    exponent = false
    val leading = at
    if (!digitsFollow() || (count > 1 && in(leading) == '0')) return false
    if (at < in.length && in(at) == '.') {
      at += 1
      val before = count
      if (!digitsFollow()) return false
      decimals = count - before
    }
    if (at < in.length && (in(at) == 'e' || in(at) == 'E')) {
      at += 1
      if (at < in.length && (in(at) == '+' || in(at) == '-')) at += 1
      exponent = true
      val before = count
      if (!digitsFollow()) return false
      count = before
    }
    // Jackson has a word of its own on zeros with a sign, and on numbers without end.
    at - numberAt <= MostText && !(negative && digits == 0L)
  }

  private def digitsFollow(): Boolean = {
    val first = at
    while (at < in.length && in(at) >= '0' && in(at) <= '9') {
      if (!exponent) digits = digits * 10 + (in(at) - '0')
      count += 1
      at += 1
    }
    at > first
  }

  /** Both are doubles without error, so their quotient is the nearest double; else as Jackson has it. */
  private def double: Double =
    if (!exponent && count <= MostDigits && digits <= ExactIntegers && decimals < Powers.length) {
      val d = if (decimals == 0) digits.toDouble else digits.toDouble / Powers(decimals)
      if (negative) -d else d
    } else if (!exponent && decimals == 0) {
      if (count <= MostDigits) signed.toDouble else Double.PositiveInfinity
    } else NumberInput.parseDouble(new String(in, numberAt, at - numberAt, ISO_8859_1), true)
}

private[headrace] object JsonScanner {
  /** No byte. */
  private val End = Int.MinValue
  private val Unknown = -1
  private val GaveUp = -2
  /** Jackson has bounds of its own, of which that for names is the least: none is longer than the whole. */
  private val MostBytes = 50000
  private val MostText = 100
  /** A long has room for so many. */
  private val MostDigits = 18
  private val ExactIntegers = 1L << 53
  private val Powers = Array.tabulate(23)(n => ("1e" + n).toDouble)
  private val Null = "null".getBytes(UTF_8)
  private val True = "true".getBytes(UTF_8)
  private val False = "false".getBytes(UTF_8)

  private def reads(dataType: DataType): Boolean = dataType match {
    case StringType | TimestampType | DoubleType | LongType | IntegerType | ShortType | ByteType | BooleanType => true
    case _ => false
  }

  /** Whether it stands in a JSON string as it is. */
  private def isPlain(b: Byte): Boolean = b < 0 || (b >= ' ' && b != '"' && b != '\\')
}
