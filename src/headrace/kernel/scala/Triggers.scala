package org.apache.spark.sql.headrace

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

/** What a trigger looks at when it decides. */
final class TriggerContext {
  var watermark: Long = Long.MinValue
  /** Processing time: when the event, or the tick of the clock, came into the log. */
  var now: Long = Long.MinValue
  var end: Long = 0L
  /** Of each `when`, whether it holds for the window's result as it is now. */
  var conditions: Array[Boolean] = Array.emptyBooleanArray
}

/**
 * When a window gives a result: a state machine with its state in a few slots of an array of longs, so that it is stored with the window. The
 * meaning of each is Beam's: a trigger is looked at after the events of a batch went in; one that has finished never fires again.
 */
sealed abstract class Trigger extends Serializable {
  /** How many slots it and its parts need. */
  def slots: Int
  def onEvent(s: Array[Long], at: Int, c: TriggerContext): Unit
  /** Joins the state of a window that has merged into this one. */
  def onMerge(s: Array[Long], other: Array[Long], at: Int, c: TriggerContext): Unit
  def shouldFire(s: Array[Long], at: Int, c: TriggerContext): Boolean
  /** The result went out. Gives whether the trigger has finished. */
  def onFire(s: Array[Long], at: Int, c: TriggerContext): Boolean
  def reset(s: Array[Long], at: Int): Unit
  /** The processing time at which it wants to be looked at; Long.MaxValue for none. */
  def due(s: Array[Long], at: Int): Long = Long.MaxValue
  /** After each look, fired or not. */
  def looked(s: Array[Long], at: Int, c: TriggerContext): Unit = ()
  def usesClock: Boolean
  def usesWatermark: Boolean
  def parts: Seq[Trigger]
}

object Trigger {
  def of(spec: JsonNode): Trigger = spec.get("kind").asText match {
    case "watermark" => AfterWatermark(optional(spec.get("early")), optional(spec.get("late")))
    case "processing_time" => AfterProcessingTime(spec.get("delayMs").asLong)
    case "count" => AfterCount(spec.get("n").asLong)
    case "when" => When(spec.get("condition").asInt)
    case "repeat" => Repeat(of(spec.get("of")))
    case "any" => Parallel(many(spec), all = false)
    case "all" => Parallel(many(spec), all = true)
    case "sequence" => Sequence(many(spec))
  }

  private def optional(spec: JsonNode): Option[Trigger] = if (spec == null || spec.isNull) None else Some(of(spec))
  private def many(spec: JsonNode): Seq[Trigger] = spec.get("of").elements().asScala.map(of).toSeq
}

/** A trigger without parts. */
sealed abstract class Leafy(val slots: Int) extends Trigger {
  override def parts: Seq[Trigger] = Nil
  override def usesClock: Boolean = false
  override def usesWatermark: Boolean = false
  override def reset(s: Array[Long], at: Int): Unit = java.util.Arrays.fill(s, at, at + slots, 0L)
  override def onFire(s: Array[Long], at: Int, c: TriggerContext): Boolean = true
}

final case class AfterCount(n: Long) extends Leafy(1) {
  override def onEvent(s: Array[Long], at: Int, c: TriggerContext): Unit = s(at) += 1
  override def onMerge(s: Array[Long], other: Array[Long], at: Int, c: TriggerContext): Unit = s(at) += other(at)
  override def shouldFire(s: Array[Long], at: Int, c: TriggerContext): Boolean = s(at) >= n
}

/** The slot is one more than the time at which it fires; zero before the first event. */
final case class AfterProcessingTime(delay: Long) extends Leafy(1) {
  override def usesClock: Boolean = true
  override def onEvent(s: Array[Long], at: Int, c: TriggerContext): Unit = if (s(at) == 0L) s(at) = c.now + delay + 1
  override def onMerge(s: Array[Long], other: Array[Long], at: Int, c: TriggerContext): Unit =
    if (other(at) != 0L && (s(at) == 0L || other(at) < s(at))) s(at) = other(at)
  override def shouldFire(s: Array[Long], at: Int, c: TriggerContext): Boolean = s(at) != 0L && c.now >= s(at) - 1
  override def due(s: Array[Long], at: Int): Long = if (s(at) == 0L) Long.MaxValue else s(at) - 1
}

/** Fires when its condition becomes true: the slot holds whether it was at the last look. */
final case class When(condition: Int) extends Leafy(1) {
  override def onEvent(s: Array[Long], at: Int, c: TriggerContext): Unit = ()
  override def onMerge(s: Array[Long], other: Array[Long], at: Int, c: TriggerContext): Unit = ()
  override def shouldFire(s: Array[Long], at: Int, c: TriggerContext): Boolean = s(at) == 0L && c.conditions(condition)
  override def reset(s: Array[Long], at: Int): Unit = ()
  override def looked(s: Array[Long], at: Int, c: TriggerContext): Unit = s(at) = if (c.conditions(condition)) 1L else 0L
}

/** Its parts' slots come after its own. */
sealed abstract class Composite(val own: Int) extends Trigger {
  override def slots: Int = own + parts.map(_.slots).sum
  private lazy val offsets: Array[Int] = parts.scanLeft(own)(_ + _.slots).toArray
  protected def at(base: Int, i: Int): Int = base + offsets(i)
  override def usesClock: Boolean = parts.exists(_.usesClock)
  override def usesWatermark: Boolean = parts.exists(_.usesWatermark)
  override def due(s: Array[Long], base: Int): Long =
    parts.indices.foldLeft(Long.MaxValue)((least, i) => math.min(least, parts(i).due(s, at(base, i))))
  override def looked(s: Array[Long], base: Int, c: TriggerContext): Unit =
    parts.indices.foreach(i => parts(i).looked(s, at(base, i), c))
  override def reset(s: Array[Long], base: Int): Unit = {
    java.util.Arrays.fill(s, base, base + own, 0L)
    parts.indices.foreach(i => parts(i).reset(s, at(base, i)))
  }
  override def onMerge(s: Array[Long], other: Array[Long], base: Int, c: TriggerContext): Unit =
    parts.indices.foreach(i => parts(i).onMerge(s, other, at(base, i), c))
}

/** The slot holds whether the result on time has gone out. */
final case class AfterWatermark(early: Option[Trigger], late: Option[Trigger]) extends Composite(1) {
  override def parts: Seq[Trigger] = early.toSeq ++ late
  override def usesWatermark: Boolean = true
  private def isLate(s: Array[Long], base: Int): Boolean = s(base) != 0L
  private def lateAt(base: Int): Int = at(base, if (early.isDefined) 1 else 0)

  override def onEvent(s: Array[Long], base: Int, c: TriggerContext): Unit =
    if (isLate(s, base)) late.foreach(_.onEvent(s, lateAt(base), c))
    else early.foreach(_.onEvent(s, at(base, 0), c))

  override def onMerge(s: Array[Long], other: Array[Long], base: Int, c: TriggerContext): Unit = {
    super.onMerge(s, other, base, c)
    // A session that has grown beyond the watermark is on time again.
    s(base) = if ((isLate(s, base) || isLate(other, base)) && c.end <= c.watermark) 1L else 0L
  }

  override def shouldFire(s: Array[Long], base: Int, c: TriggerContext): Boolean =
    if (isLate(s, base)) late.exists(_.shouldFire(s, lateAt(base), c))
    else c.watermark >= c.end || early.exists(_.shouldFire(s, at(base, 0), c))

  override def onFire(s: Array[Long], base: Int, c: TriggerContext): Boolean =
    if (isLate(s, base)) { late.foreach(_.onFire(s, lateAt(base), c)); false }
    else if (c.watermark >= c.end) { s(base) = 1L; late.isEmpty }
    else { early.foreach(_.onFire(s, at(base, 0), c)); false }

  override def due(s: Array[Long], base: Int): Long =
    if (isLate(s, base)) late.fold(Long.MaxValue)(_.due(s, lateAt(base)))
    else early.fold(Long.MaxValue)(_.due(s, at(base, 0)))
}

final case class Repeat(of: Trigger) extends Composite(0) {
  override def parts: Seq[Trigger] = Seq(of)
  override def onEvent(s: Array[Long], base: Int, c: TriggerContext): Unit = of.onEvent(s, base, c)
  override def shouldFire(s: Array[Long], base: Int, c: TriggerContext): Boolean = of.shouldFire(s, base, c)
  override def onFire(s: Array[Long], base: Int, c: TriggerContext): Boolean = {
    if (of.onFire(s, base, c)) of.reset(s, base)
    false
  }
}

/** Any or all of its parts, side by side. */
final case class Parallel(parts: Seq[Trigger], all: Boolean) extends Composite(0) {
  override def onEvent(s: Array[Long], base: Int, c: TriggerContext): Unit =
    parts.indices.foreach(i => parts(i).onEvent(s, at(base, i), c))
  override def shouldFire(s: Array[Long], base: Int, c: TriggerContext): Boolean =
    if (all) parts.indices.forall(i => parts(i).shouldFire(s, at(base, i), c))
    else parts.indices.exists(i => parts(i).shouldFire(s, at(base, i), c))
  override def onFire(s: Array[Long], base: Int, c: TriggerContext): Boolean = {
    val finished = parts.indices.filter(i => parts(i).shouldFire(s, at(base, i), c)).map(i => parts(i).onFire(s, at(base, i), c))
    if (all) finished.forall(identity) else finished.exists(identity)
  }
}

/** One part after the other; the slot says whose turn it is. */
final case class Sequence(parts: Seq[Trigger]) extends Composite(1) {
  override def onEvent(s: Array[Long], base: Int, c: TriggerContext): Unit = {
    val i = s(base).toInt
    if (i < parts.length) parts(i).onEvent(s, at(base, i), c)
  }
  override def onMerge(s: Array[Long], other: Array[Long], base: Int, c: TriggerContext): Unit = {
    super.onMerge(s, other, base, c)
    s(base) = math.max(s(base), other(base))
  }
  override def shouldFire(s: Array[Long], base: Int, c: TriggerContext): Boolean = {
    val i = s(base).toInt
    i < parts.length && parts(i).shouldFire(s, at(base, i), c)
  }
  override def onFire(s: Array[Long], base: Int, c: TriggerContext): Boolean = {
    val i = s(base).toInt
    if (i < parts.length && parts(i).onFire(s, at(base, i), c)) s(base) += 1
    s(base) >= parts.length
  }
  override def due(s: Array[Long], base: Int): Long = {
    val i = s(base).toInt
    if (i < parts.length) parts(i).due(s, at(base, i)) else Long.MaxValue
  }
}
