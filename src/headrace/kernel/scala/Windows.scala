package org.apache.spark.sql.headrace

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{BasePredicate, Expression, Predicate}
import org.apache.spark.sql.streaming.StatefulProcessorHandle
import org.apache.spark.sql.types.StructType
import org.apache.spark.unsafe.types.UTF8String

/** What becomes of a window's earlier results when it gives another one. */
object PaneMode {
  val Accumulating = "accumulating"
  val Discarding = "discarding"
  val Retracting = "retracting"
}

/** A window step as declared. Columns of a result: the key's, start, end, the aggregates', then those of the pane. */
case class WindowStep(
    name: String,
    assigner: WindowAssigner,
    trigger: Trigger,
    aggregates: AggregateColumns,
    /** Over key, start, end and aggregates. */
    conditions: Seq[Expression],
    panes: String,
    latenessMs: Long,
    resultTime: String,
    resultTimePlusMs: Long,
    keySchema: StructType,
    resultSchema: StructType) extends Serializable

/**
 * Aggregates of event-time windows. An event goes into its windows; after the events of a key in a batch, and whenever the watermark
 * or the clock gives reason to, the trigger of each window concerned is asked whether to give a result.
 *
 * A window lives until the watermark is `latenessMs` past its end. What was not seen by then goes out in a last result; what comes later is late.
 */
final class Windows(step: WindowStep) extends Stage {
  import step._

  @transient private var evaluator: AggregateEvaluator = _
  @transient private var index: PaneIndex = _
  @transient private var timers: Timers = _
  @transient private var predicates: Array[BasePredicate] = _
  @transient private var context: TriggerContext = _
  @transient private var result: ResultRow = _
  @transient private var touched: mutable.LinkedHashSet[Pane] = _
  @transient private var settled: Boolean = _

  private val keepsEmitted = panes == PaneMode.Retracting || (panes == PaneMode.Accumulating && assigner.merges)

  override def exactTimers: Boolean = true
  override def usesClock: Boolean = trigger.usesClock

  override def open(handle: StatefulProcessorHandle, own: Timers): Unit = {
    timers = own
    evaluator = aggregates.evaluator()
    index = new PaneIndex(MapNodeStore.open(handle, name), trigger.slots, evaluator)
    predicates = conditions.map(c => Predicate.createInterpreted(c): BasePredicate).toArray
    context = new TriggerContext
    context.conditions = new Array[Boolean](predicates.length)
    result = new ResultRow(keySchema, resultSchema, evaluator)
    touched = mutable.LinkedHashSet.empty
  }

  override def begin(unknown: Boolean): Unit = { index.load(unknown); touched.clear(); settled = false; context.now = Long.MinValue }

  override def process(event: Event, watermark: Long, out: Outgoings): Unit = {
    context.watermark = watermark
    context.now = math.max(context.now, event.arrived)
    // What the watermark has closed goes out before late events get into it.
    if (!settled) { settle(out); settled = true }
    val accepted = if (assigner.merges) session(event) else windows(event)
    if (accepted.isEmpty) event.leave(Routes.Late, Reasons.lateForWindow(event.time, watermark, name))
    else {
      accepted.foreach(count(_, event, watermark))
      event.leave(Routes.Absorbed, null)
    }
  }

  /**
   * Aggregates the event, in windows that are otherwise left as they are: it may fail, and then it must not have changed anything. A window
   * that was made for it goes.
   */
  private def aggregate(panes: Seq[Pane], event: Event): Unit =
    try {
      evaluator.check(event.row)
      // What one window holds may leave no room for the event, as in a sum: the first is changed once the others are known to take it.
      panes.tail.foreach(pane => evaluator.check(pane.buffer(evaluator), event.row))
      panes.foreach(pane => evaluator.update(pane.buffer(evaluator), event.row))
    } catch { case failure: RowFailure => panes.filter(_.isNew).foreach(index.remove); throw failure }

  /** The event is in: all that the window notes of it besides. */
  private def count(pane: Pane, event: Event, watermark: Long): Unit = {
    pane.isNew = false
    // An event behind the watermark can't hold back the time of the result: that time has been passed already.
    if (event.time >= watermark) pane.earliest = math.min(pane.earliest, event.time)
    pane.latest = math.max(pane.latest, event.time)
    pane.arrived = math.max(pane.arrived, event.arrived)
    pane.fresh = true
    pane.dirty = true
    context.end = pane.end
    trigger.onEvent(pane.trigger, 0, context)
    touched += pane
  }

  private def expiry(end: Long): Long = if (end == WindowAssigner.EndOfTime) end else end + latenessMs

  private def windows(event: Event): Seq[Pane] = {
    val spans = assigner.assign(event.time)
    val open = if (spans.length == 1) window(spans(0)).toSeq else spans.toSeq.flatMap(window)
    if (open.nonEmpty) aggregate(open, event)
    open
  }

  private def window(span: Span): Option[Pane] =
    if (expiry(span.end) <= context.watermark) None
    else Some(index.find(span).getOrElse(index.create(span))).filterNot(_.closed)

  /** The one session that an event is in, after it has joined those that it bridges. */
  private def session(event: Event): Seq[Pane] = {
    val alone = assigner.assign(event.time)(0)
    val met = index.overlapping(alone)
    val whole = met.foldLeft(alone)((s, p) => Span(math.min(s.start, p.start), math.max(s.end, p.end)))
    if (expiry(whole.end) <= context.watermark || met.exists(_.closed)) Nil
    else if (met.isEmpty) { val own = Seq(index.create(whole)); aggregate(own, event); own }
    else {
      val base = met.find(_.span == whole).getOrElse(met.minBy(_.start))
      val others = met.filterNot(_ eq base)
      if (others.isEmpty) aggregate(met, event) else unite(base, others, event)
      grow(base, whole)
      others.foreach(join(base, _))
      Seq(base)
    }
  }

  /** Aggregates the event with all that is in these sessions: beside them first, as they are not to be one if that fails. */
  private def unite(base: Pane, others: Seq[Pane], event: Event): Unit = {
    val trial = evaluator.empty()
    (base +: others).foreach(merge(trial, _))
    evaluator.update(trial, event.row)
    val buffer = base.buffer(evaluator)
    others.foreach(merge(buffer, _))
    evaluator.update(buffer, event.row)
  }

  private def merge(buffer: InternalRow, pane: Pane): Unit = {
    val bytes = pane.stored(evaluator)
    if (bytes != null) evaluator.merge(buffer, bytes)
  }

  /** A session with other bounds is another window: its results count from zero, and those of the old bounds stand no more. */
  private def grow(pane: Pane, whole: Span): Unit = if (pane.span != whole) {
    if (pane.emitted != null) { pane.orphans += pane.emitted; pane.emitted = null }
    index.resize(pane, whole)
    pane.index = 0L
    context.end = pane.end
    if (pane.end > context.watermark) pane.onTime = false
    trigger.onMerge(pane.trigger, new Array[Long](pane.trigger.length), 0, context)
    pane.dirty = true
    touched += pane
  }

  /** All that the other one notes besides what has been aggregated. */
  private def join(into: Pane, other: Pane): Unit = {
    into.earliest = math.min(into.earliest, other.earliest)
    into.latest = math.max(into.latest, other.latest)
    into.arrived = math.max(into.arrived, other.arrived)
    into.fresh |= other.fresh
    if (other.emitted != null) into.orphans += other.emitted
    into.orphans ++= other.orphans
    context.end = into.end
    trigger.onMerge(into.trigger, other.trigger, 0, context)
    touched -= other
    index.remove(other)
  }

  override def finish(watermark: Long, out: Outgoings): Unit = {
    touched.foreach(look(_, out))
    schedule(out)
  }

  override def expire(watermark: Long, out: Outgoings): Unit = {
    context.watermark = watermark
    settle(out)
    schedule(out)
  }

  override def tick(now: Long, watermark: Long, out: Outgoings): Unit = {
    context.watermark = watermark
    context.now = now
    settle(out)
    index.clockAt(now).foreach(look(_, out))
    index.setClock(Long.MaxValue)
    schedule(out)
  }

  override def end(soon: Long): Unit = index.save()

  /** Attends to the windows whose end, or whose end of life, the watermark has reached. */
  private def settle(out: Outgoings): Unit = index.dueAt(context.watermark).foreach { pane =>
    if (!pane.closed && !pane.onTime) { look(pane, out); pane.onTime = true; pane.dirty = true }
    if (expiry(pane.end) <= context.watermark) {
      if (!pane.closed && pane.fresh) fire(pane, out)
      index.remove(pane)
    } else note(pane)
  }

  private def look(pane: Pane, out: Outgoings): Unit = if (!pane.closed) {
    context.end = pane.end
    if (predicates.nonEmpty) decide(pane)
    if (trigger.shouldFire(pane.trigger, 0, context)) fire(pane, out)
    trigger.looked(pane.trigger, 0, context)
    pane.dirty = true
    note(pane)
  }

  private def note(pane: Pane): Unit = {
    val due = if (!pane.closed && !pane.onTime && trigger.usesWatermark) pane.end else expiry(pane.end)
    index.note(pane, due, if (pane.closed) Long.MaxValue else trigger.due(pane.trigger, 0))
  }

  private def schedule(out: Outgoings): Unit = {
    index.schedule(timers, context.watermark, shared = !assigner.merges)
    if (usesClock) {
      val clock = index.nextClock
      if (clock < index.clock) { out.noteClock(clock); index.setClock(clock) }
    }
  }

  private def fire(pane: Pane, out: Outgoings): Unit = {
    val watermark = context.watermark
    context.end = pane.end
    val timing = if (watermark < pane.end) Windows.Early else if (!pane.onTime) Windows.OnTime else Windows.Late
    val finished = trigger.onFire(pane.trigger, 0, context)
    val last = finished || expiry(pane.end) <= watermark
    try tell(pane, timing, last, out)
    // An expression over the aggregates failed, as a division by a sum that is zero. Earlier results stand.
    catch { case failure: RowFailure => out.deadLetter(Reasons.resultFailed(name, pane.span, failure.getCause)) }
    if (watermark >= pane.end) pane.onTime = true
    pane.fresh = false
    pane.dirty = true
    if (panes == PaneMode.Discarding || finished) pane.clearBuffer()
    if (finished) { pane.closed = true; pane.emitted = null }
  }

  private def tell(pane: Pane, timing: UTF8String, last: Boolean, out: Outgoings): Unit = {
    result.fill(pane.start, pane.end, pane.buffer(evaluator))
    val kind = if (panes == PaneMode.Discarding || pane.index == 0L) Windows.Inserted else Windows.Updated
    result.pane(time(pane), pane.index, timing, last, kind, pane.arrived)
    val bytes = result.bytes
    pane.orphans.foreach(old => out.result(result.again(old, Windows.Deleted)))
    pane.orphans.clear()
    if (pane.emitted != null && panes == PaneMode.Retracting) out.result(result.again(pane.emitted, Windows.Withdrawn))
    out.result(bytes)
    pane.index += 1
    if (keepsEmitted) pane.emitted = bytes
  }

  /** Whether the conditions of the trigger hold. One that fails does not; none does where the result can't be computed. */
  private def decide(pane: Pane): Unit = try {
    result.fill(pane.start, pane.end, pane.buffer(evaluator))
    predicates.indices.foreach(i => context.conditions(i) = holds(predicates(i)))
  } catch { case _: RowFailure => java.util.Arrays.fill(context.conditions, false) }

  /** The condition is the user's, and may fail in any way, as by a division by an aggregate that is zero. */
  private def holds(condition: BasePredicate): Boolean = try condition.eval(result.row) catch { case NonFatal(_) => false }

  /** The time of a result: that of the window's last moment if no event has a say in it, and none if the window has no end. */
  private def time(pane: Pane): Option[Long] = {
    val event = resultTime match {
      case "end" => None
      case "earliest" => Option.when(pane.earliest != Long.MaxValue)(pane.earliest + resultTimePlusMs)
      case "latest" => Option.when(pane.latest != Long.MinValue)(pane.latest + resultTimePlusMs)
    }
    event.orElse(Option.when(pane.end != WindowAssigner.EndOfTime)(pane.end - 1))
  }

  override def turnTo(key: Array[Byte]): Unit = result.turnTo(key)
}

object Windows {
  val Early: UTF8String = UTF8String.fromString("early")
  val OnTime: UTF8String = UTF8String.fromString("on_time")
  val Late: UTF8String = UTF8String.fromString("late")
  val Inserted: UTF8String = UTF8String.fromString("+I")
  val Updated: UTF8String = UTF8String.fromString("+U")
  val Withdrawn: UTF8String = UTF8String.fromString("-U")
  val Deleted: UTF8String = UTF8String.fromString("-D")
}
