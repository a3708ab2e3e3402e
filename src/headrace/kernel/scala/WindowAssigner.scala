package org.apache.spark.sql.headrace

import java.time.{Instant, LocalDateTime, ZoneId, ZoneOffset}

import com.fasterxml.jackson.databind.JsonNode

/** Which windows an event is in: [start, end), in milliseconds. */
sealed trait WindowAssigner extends Serializable {
  /** The windows of an event, latest first. */
  def assign(time: Long): Array[Span]
  /** Whether windows that overlap are one. */
  def merges: Boolean = false
}

case class Span(start: Long, end: Long)

object WindowAssigner {
  /** The last millisecond of the year 9999: what the watermark is when input that ends has been read. */
  val EndOfTime = 253402300799999L
  /** The one window that is all of time. */
  val Forever: Span = Span(Long.MinValue, EndOfTime)

  def of(spec: JsonNode): WindowAssigner = spec.get("kind").asText match {
    case "tumbling" => aligned(spec, spec.get("sizeMs").asLong)
    case "hopping" => aligned(spec, spec.get("slideMs").asLong)
    case "session" => new Sessions(spec.get("gapMs").asLong)
    case "global" => Everything
  }

  private def aligned(spec: JsonNode, slide: Long): WindowAssigner = {
    val size = spec.get("sizeMs").asLong
    val offset = spec.get("offsetMs").asLong
    if (spec.get("timeZone").isNull) new Aligned(size, slide, offset)
    else new AlignedLocally(size, slide, offset, spec.get("timeZone").asText)
  }
}

final class Aligned(val size: Long, val slide: Long, val offset: Long) extends WindowAssigner {
  override def assign(time: Long): Array[Span] = {
    val last = Math.floorDiv(time - offset, slide) * slide + offset
    if (size == slide) Array(Span(last, last + size))
    else {
      val count = ((size - 1 - (time - last)) / slide + 1).toInt
      Array.tabulate(math.max(count, 0))(i => Span(last - i * slide, last - i * slide + size))
    }
  }
}

/** Windows of whole days by the wall clock of a zone: 23 or 25 hours long when the clocks change. */
final class AlignedLocally(size: Long, slide: Long, offset: Long, zone: String) extends WindowAssigner {
  @transient private lazy val id = ZoneId.of(zone)
  private val aligned = new Aligned(size, slide, offset)

  override def assign(time: Long): Array[Span] = {
    // A wall clock as if it were UTC, so that days have 24 hours while windows are found.
    val wall = LocalDateTime.ofInstant(Instant.ofEpochMilli(time), id).toInstant(ZoneOffset.UTC).toEpochMilli
    // A bound that the wall clock skips or shows twice is moved, or is its first showing: the event may be in a window beside those.
    Array(wall + slide, wall, wall - slide).flatMap(aligned.assign).distinct
      .map(w => Span(instant(w.start), instant(w.end)))
      .filter(w => w.start <= time && time < w.end)
      .sortBy(-_.start)
  }

  private def instant(wall: Long): Long =
    LocalDateTime.ofInstant(Instant.ofEpochMilli(wall), ZoneOffset.UTC).atZone(id).toInstant.toEpochMilli
}

final class Sessions(gap: Long) extends WindowAssigner {
  override def assign(time: Long): Array[Span] = Array(Span(time, time + gap))
  override def merges: Boolean = true
}

object Everything extends WindowAssigner {
  override def assign(time: Long): Array[Span] = Array(WindowAssigner.Forever)
}
