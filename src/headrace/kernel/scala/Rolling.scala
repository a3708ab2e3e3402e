package org.apache.spark.sql.headrace

import java.math.{BigDecimal => JBigDecimal}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.streaming.StatefulProcessorHandle
import org.apache.spark.sql.types._

/** `last(window).function(column)`; `ordinal` is that of the column in the operator's input, -1 for none. */
case class WindowAggregate(function: String, ordinal: Int, windowMs: Long, resultType: DataType)

object WindowAggregate {
  def resultType(function: String, column: DataType): DataType = (function, column) match {
    case ("count" | "approx_count_distinct", _) => LongType
    case ("avg" | "stddev", _) => DoubleType
    case ("sum", d: DecimalType) => DecimalType(math.min(d.precision + 10, DecimalType.MAX_PRECISION), d.scale)
    case ("sum", DoubleType | FloatType) => DoubleType
    case ("sum", _) => LongType
    case _ => column
  }
}

/** `latest(columns, back)` within (t - withinMs, t]. */
case class LatestEvent(ordinals: Array[Int], back: Int, withinMs: Long, resultType: StructType)

/**
 * Per event, aggregates over the event-time window (t - w, t] of what has arrived of its key, the event itself
 * included; `latest` gives columns of the n-th previous event by event time. An event that comes out of order but not behind the
 * watermark gets the result of its own window. An event behind the watermark is late: it changes nothing. Nor does one whose results can't be
 * computed: they are, before the event goes in.
 *
 * State: the events of (watermark - largest window, ...], dropped when the watermark passes; a timer cleans up keys that fall silent. A `latest` that
 * reaches further back than the windows keeps, of the events before those, only as many as it counts back.
 */
final class Rolling(
    name: String,
    schema: StructType,
    windows: Array[WindowAggregate],
    latest: Array[LatestEvent],
    firstResult: Int) extends Stage {

  private val windowMs = windows.map(_.windowMs).maxOption.getOrElse(0L)
  private val retentionMs = (latest.map(_.withinMs) :+ windowMs).max
  /** Of events that no window needs any more, so many may still be asked for. */
  private val mostBack = latest.filter(_.withinMs > windowMs).map(_.back).maxOption.getOrElse(0)
  // By name: the order of columns in a schema, and of aggregates in a step, may change while there is state.
  private val storedOrdinals =
    (windows.map(_.ordinal).filter(_ >= 0) ++ latest.flatMap(_.ordinals)).distinct.sortBy(schema(_).name)
  private val specs = windows.flatMap(measuresOf).distinct

  @transient private var timers: Timers = _
  @transient private var events: TimeTree = _
  @transient private var plans: Array[WindowPlan] = _
  @transient private var latestRows: Array[UnsafeProjection] = _
  @transient private lazy val storedRow = UnsafeProjection.create(
    storedOrdinals.map(i => BoundReference(i, schema(i).dataType, nullable = true)).toIndexedSeq)
  /** What is kept of the event that passed last. */
  @transient private var row: UnsafeRow = _
  @transient private lazy val previous = new UnsafeRow(storedOrdinals.length)

  private def measuresOf(w: WindowAggregate): Seq[MeasureSpec] = if (w.ordinal < 0) Nil else {
    val at = storedOrdinals.indexOf(w.ordinal)
    val dataType = schema(w.ordinal).dataType
    val count = MeasureSpec("count", at, dataType)
    w.function match {
      case "count" => Seq(count)
      case "sum" => Seq(count, MeasureSpec(sumKind(dataType), at, dataType))
      case "avg" => Seq(count, MeasureSpec("sum", at, dataType))
      case "stddev" => Seq(count, MeasureSpec("sum", at, dataType), MeasureSpec("squares", at, dataType))
      case "min" | "max" => Seq(MeasureSpec(w.function, at, dataType))
      case "approx_count_distinct" => Seq(MeasureSpec("distinct", at, dataType))
    }
  }

  private def sumKind(dataType: DataType): String = dataType match {
    case _: DecimalType => "decimals"
    case DoubleType | FloatType => "sum"
    case _ => "integers"
  }

  override def open(handle: StatefulProcessorHandle, own: Timers): Unit = {
    timers = own
    val measures = specs.map(_.create())
    events = new TimeTree(storedOrdinals.length, measures, MapNodeStore.open(handle, name))
    plans = windows.zipWithIndex
      .groupBy { case (w, _) => w.windowMs }.toArray.sortBy(_._1)
      .map { case (windowMs, members) =>
        val wanted = members.flatMap { case (w, _) => measuresOf(w) }.distinct.map(s => measures(specs.indexOf(s)))
        new WindowPlan(windowMs, wanted, members.map { case (w, i) =>
          (firstResult + i, evaluator(w, measuresOf(w).map(s => measures(specs.indexOf(s)))))
        })
      }
    latestRows = latest.map { l =>
      UnsafeProjection.create(l.ordinals.map(i =>
        BoundReference(storedOrdinals.indexOf(i), schema(i).dataType, nullable = true)).toIndexedSeq)
    }
  }

  override def begin(unknown: Boolean): Unit = events.load(unknown)

  override def process(event: Event, watermark: Long, out: Outgoings): Unit = {
    if (event.time < watermark) event.leave(Routes.Late, Reasons.late(event.time, watermark))
    else {
      prune(watermark)
      row = storedRow(event.row)
      var i = 0
      while (i < plans.length) { plans(i).evaluate(event); i += 1 }
      if (latest.length > 0) lookBack(event)
    }
  }

  override def keep(event: Event): Unit = events.insert(event.time, row)

  private def lookBack(event: Event): Unit = {
    val rank = events.countUpTo(event.time)
    var i = 0
    while (i < latest.length) {
      event.results(firstResult + windows.length + i) = previousOf(latest(i), event.time, rank) match {
        case null => null
        case found => latestRows(i)(found).copy()
      }
      i += 1
    }
  }

  /** The event so far back from the one of that time and rank, or null. */
  private def previousOf(look: LatestEvent, time: Long, rank: Long): UnsafeRow =
    if (look.back == 0) row
    else if (look.back > rank || events.select(rank - look.back, previous) <= time - look.withinMs) null
    else previous

  override def expire(watermark: Long, out: Outgoings): Unit = if (events.due != TimeTree.NoTimer && events.due <= watermark) {
    prune(watermark)
    events.clearDue()
  }

  /** Drops what no event at the watermark or after it can need. */
  private def prune(watermark: Long): Unit = if (!events.isEmpty && events.first <= watermark - windowMs) {
    val old = watermark - retentionMs
    events.prune(if (retentionMs == windowMs) old else math.max(old, math.min(watermark - windowMs, beforeThoseToKeep(watermark))))
  }

  /** An event may come at the watermark, behind all others of that time, and count back from there. */
  private def beforeThoseToKeep(watermark: Long): Long = {
    val keptFrom = events.countUpTo(watermark) - mostBack
    if (keptFrom <= 0L) Long.MinValue else if (mostBack == 0) watermark else events.select(keptFrom, previous) - 1L
  }

  // While events come in, they prune what is too old; a timer is for the time after the last of them.
  override def end(soon: Long): Unit = {
    prune(soon)
    if (!events.isEmpty) {
      val more = events.count > mostBack && events.last + windowMs > soon
      events.schedule(timers, events.last + (if (more) windowMs else retentionMs), soon, retentionMs)
    }
    events.save()
  }

  /** All aggregates over one width of window: one walk through the tree serves them. */
  private final class WindowPlan(windowMs: Long, wanted: Array[Measure], outputs: Array[(Int, () => Any)]) {
    def evaluate(event: Event): Unit = {
      events.query(event.time - windowMs, event.time, row, wanted)
      var i = 0
      while (i < outputs.length) { event.results(outputs(i)._1) = outputs(i)._2(); i += 1 }
    }
  }

  private def evaluator(w: WindowAggregate, measures: Seq[Measure]): () => Any = (w.function, measures) match {
    case ("count", Seq()) => () => events.matched
    case ("count", Seq(n: NonNullCount)) => () => n.value
    case ("sum", Seq(n: NonNullCount, s: DoubleSum)) => () => if (n.value == 0) null else s.sum.value
    case ("sum", Seq(n: NonNullCount, s: IntegerSum)) => () => if (n.value == 0) null else s.value
    case ("sum", Seq(n: NonNullCount, s: DecimalSum)) =>
      val result = w.resultType.asInstanceOf[DecimalType]
      () => if (n.value == 0) null else s.value(result)
    case ("avg", Seq(n: NonNullCount, s: DoubleSum)) => () => if (n.value == 0) null else s.sum.value / n.value
    case ("stddev", Seq(n: NonNullCount, s: DoubleSum, q: SquareSum)) => () => sampleDeviation(n.value, s.sum, q.sum)
    case (_, Seq(e: Extreme)) => () => e.value
    case (_, Seq(d: DistinctCount)) => () => d.value
  }

  /** From the exact sums, so that no cancellation hides in it: sqrt((n * sum(x^2) - sum(x)^2) / (n * (n - 1))). */
  private def sampleDeviation(n: Long, sum: ExactSum, squares: ExactSum): Any =
    if (n < 2) null
    else if (!java.lang.Double.isFinite(sum.value) || !java.lang.Double.isFinite(squares.value)) Double.NaN
    else {
      val s = sum.exact
      val spread = squares.exact.multiply(JBigDecimal.valueOf(n)).subtract(s.multiply(s)).doubleValue()
      math.sqrt(math.max(spread, 0.0) / (n.toDouble * (n - 1).toDouble))
    }
}
