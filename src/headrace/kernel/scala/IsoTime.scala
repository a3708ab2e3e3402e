package org.apache.spark.sql.headrace

import java.nio.charset.StandardCharsets.ISO_8859_1
import java.time.{Instant, ZoneOffset}

import org.apache.spark.sql.catalyst.util.DateTimeUtils
import org.apache.spark.unsafe.types.UTF8String

/**
 * Timestamps as ISO 8601 text, by hand for the form that nearly every event has (2026-01-31T23:59:59.123Z) and by Spark's own code for
 * all others. Formatting through java.time cost more than the rest of a record's JSON together.
 */
object IsoTime {
  private val MicrosPerDay = 86400000000L

  /** Microseconds since the epoch as 24 ASCII bytes with milliseconds, in UTC. */
  def write(micros: Long, out: ByteWriter): Unit = {
    val days = Math.floorDiv(micros, MicrosPerDay)
    // Years 0000 to 9999; beyond, ISO has no fixed width.
    if (days < -719528L || days > 2932896L) {
      out.putBytes(Instant.ofEpochMilli(Math.floorDiv(micros, 1000L)).toString.getBytes("US-ASCII"))
      return
    }
    val ofDay = Math.floorMod(micros, MicrosPerDay)
    // Days to a date of the proleptic Gregorian calendar, counting years from March so that the leap day comes last.
    val z = days + 719468L
    val era = Math.floorDiv(z, 146097L)
    val dayOfEra = (z - era * 146097L).toInt
    val yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36524 - dayOfEra / 146096) / 365
    val dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    val shifted = (5 * dayOfYear + 2) / 153
    val day = dayOfYear - (153 * shifted + 2) / 5 + 1
    val month = if (shifted < 10) shifted + 3 else shifted - 9
    val year = (yearOfEra + era * 400).toInt + (if (month <= 2) 1 else 0)
    two(out, year / 100); two(out, year % 100); out.putByte('-'); two(out, month); out.putByte('-'); two(out, day); out.putByte('T')
    val seconds = (ofDay / 1000000L).toInt
    two(out, seconds / 3600); out.putByte(':'); two(out, seconds / 60 % 60); out.putByte(':'); two(out, seconds % 60)
    val millis = (ofDay / 1000L % 1000L).toInt
    out.putByte('.'); out.putByte('0' + millis / 100); two(out, millis % 100); out.putByte('Z')
  }

  private def two(out: ByteWriter, value: Int): Unit = { out.putByte('0' + value / 10); out.putByte('0' + value % 10) }

  /** What the quick parser says of a text that is not in the common form. */
  val Unusual: Long = Long.MinValue

  /** Microseconds since the epoch, or null if the text is no timestamp. A time without a zone is in UTC; one without a date is none. */
  def parse(text: String): java.lang.Long = {
    // As many bytes as characters, but for the rare ones that are two; what this set lacks becomes a question mark, which no time has.
    val bytes = text.getBytes(ISO_8859_1)
    val fast = parseUtc(bytes, 0, bytes.length)
    if (fast != Unusual) fast else parseAny(UTF8String.fromString(text))
  }

  private def parseAny(text: UTF8String): java.lang.Long = {
    val micros = DateTimeUtils.stringToTimestamp(text, ZoneOffset.UTC)
    // Spark takes a time without a date for one of today: a replay on another day would read it as another time.
    if (micros.isEmpty || DateTimeUtils.parseTimestampString(text)._3) null else micros.get
  }

  /** The common form only: date, T or space, time, up to six digits of fraction, Z. */
  private[headrace] def parseUtc(s: Array[Byte], from: Int, until: Int): Long = {
    val length = until - from
    if (length < 20 || length > 27 || s(until - 1) != 'Z') return Unusual
    if (s(from + 4) != '-' || s(from + 7) != '-' || s(from + 13) != ':' || s(from + 16) != ':') return Unusual
    if (s(from + 10) != 'T' && s(from + 10) != ' ') return Unusual
    val year = number(s, from, from + 4); val month = number(s, from + 5, from + 7); val day = number(s, from + 8, from + 10)
    val hour = number(s, from + 11, from + 13); val minute = number(s, from + 14, from + 16); val second = number(s, from + 17, from + 19)
    if ((year | month | day | hour | minute | second) < 0) return Unusual
    if (month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59) return Unusual
    if (day > 28 && day > java.time.YearMonth.of(year, month).lengthOfMonth()) return Unusual
    var micros = 0
    if (length > 20) {
      if (s(from + 19) != '.' || length == 21) return Unusual
      micros = number(s, from + 20, until - 1)
      if (micros < 0) return Unusual
      var i = length - 21
      while (i < 6) { micros *= 10; i += 1 }
    }
    (daysOf(year, month, day) * 86400L + hour * 3600 + minute * 60 + second) * 1000000L + micros
  }

  private def number(s: Array[Byte], from: Int, until: Int): Int = {
    var value = 0
    var i = from
    while (i < until) {
      val digit = s(i) - '0'
      if (digit < 0 || digit > 9) return -1
      value = value * 10 + digit
      i += 1
    }
    value
  }

  private def daysOf(year: Int, month: Int, day: Int): Long = {
    val y = if (month <= 2) year - 1 else year
    val era = Math.floorDiv(y, 400)
    val yearOfEra = y - era * 400
    val dayOfYear = (153 * (if (month > 2) month - 3 else month + 9) + 2) / 5 + day - 1
    val dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
    era * 146097L + dayOfEra - 719468L
  }
}
