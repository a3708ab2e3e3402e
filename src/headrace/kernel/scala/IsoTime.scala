package org.apache.spark.sql.headrace

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
    digits(out, year, 4); out.putByte('-'); digits(out, month, 2); out.putByte('-'); digits(out, day, 2); out.putByte('T')
    val seconds = (ofDay / 1000000L).toInt
    digits(out, seconds / 3600, 2); out.putByte(':'); digits(out, seconds / 60 % 60, 2); out.putByte(':')
    digits(out, seconds % 60, 2); out.putByte('.'); digits(out, (ofDay / 1000L % 1000L).toInt, 3); out.putByte('Z')
  }

  private def digits(out: ByteWriter, value: Int, width: Int): Unit = {
    var divisor = if (width == 4) 1000 else if (width == 3) 100 else 10
    while (divisor > 0) { out.putByte('0' + value / divisor % 10); divisor /= 10 }
  }

  /** Microseconds since the epoch, or null if the text is no timestamp. A time without a zone is in UTC. */
  def parse(text: String): java.lang.Long = {
    val fast = parseUtc(text)
    if (fast != Long.MinValue) fast
    else DateTimeUtils.stringToTimestamp(UTF8String.fromString(text), ZoneOffset.UTC).map(Long.box).orNull
  }

  /** The common form only: date, T or space, time, up to six digits of fraction, Z. */
  private def parseUtc(s: String): Long = {
    val length = s.length
    if (length < 20 || length > 27 || s.charAt(length - 1) != 'Z') return Long.MinValue
    if (s.charAt(4) != '-' || s.charAt(7) != '-' || s.charAt(13) != ':' || s.charAt(16) != ':') return Long.MinValue
    if (s.charAt(10) != 'T' && s.charAt(10) != ' ') return Long.MinValue
    val year = number(s, 0, 4); val month = number(s, 5, 7); val day = number(s, 8, 10)
    val hour = number(s, 11, 13); val minute = number(s, 14, 16); val second = number(s, 17, 19)
    if ((year | month | day | hour | minute | second) < 0) return Long.MinValue
    if (month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59) return Long.MinValue
    if (day > 28 && day > java.time.YearMonth.of(year, month).lengthOfMonth()) return Long.MinValue
    var micros = 0
    if (length > 20) {
      if (s.charAt(19) != '.' || length == 21) return Long.MinValue
      micros = number(s, 20, length - 1)
      if (micros < 0) return Long.MinValue
      var i = length - 21
      while (i < 6) { micros *= 10; i += 1 }
    }
    (daysOf(year, month, day) * 86400L + hour * 3600 + minute * 60 + second) * 1000000L + micros
  }

  private def number(s: String, from: Int, until: Int): Int = {
    var value = 0
    var i = from
    while (i < until) {
      val digit = s.charAt(i) - '0'
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
