package org.apache.spark.sql.headrace

import scala.collection.mutable

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.streaming.StatefulProcessorHandle

/**
 * Hopping windows that share slices: an event goes into one slice, however many windows it is in, and a window is merged from its slices when
 * it gives a result. For the common case: results at the end of the window and, within the lateness, for each batch of late events.
 */
final class SharedHops(step: WindowStep, hops: Aligned, restates: Boolean) extends Stage {
  import hops.{offset, size, slide}
  import step._

  private val slice: Long = SharedHops.gcd(size, slide)

  @transient private var evaluator: AggregateEvaluator = _
  @transient private var index: PaneIndex = _
  @transient private var timers: Timers = _
  @transient private var result: ResultRow = _
  @transient private var touched: mutable.LinkedHashSet[Long] = _
  @transient private var settled: Boolean = _
  @transient private var now: Long = _

  override def exactTimers: Boolean = true

  override def open(handle: StatefulProcessorHandle, own: Timers): Unit = {
    timers = own
    evaluator = aggregates.evaluator()
    index = new PaneIndex(MapNodeStore.open(handle, name), 0, evaluator)
    result = new ResultRow(keySchema, resultSchema, evaluator)
    touched = mutable.LinkedHashSet.empty
  }

  override def turnTo(key: Array[Byte]): Unit = result.turnTo(key)
  override def begin(unknown: Boolean): Unit = { index.load(unknown); touched.clear(); settled = false }

  /** The ends of the windows that a slice is in: the first, and the last. */
  private def firstEnd(start: Long): Long = (Math.floorDiv(start - offset - size, slide) + 1) * slide + offset + size
  private def lastEnd(start: Long): Long = Math.floorDiv(start - offset, slide) * slide + offset + size

  override def process(event: Event, watermark: Long, out: Outgoings): Unit = {
    now = watermark
    if (!settled) { settle(out); settled = true }
    val start = Math.floorDiv(event.time - offset, slice) * slice + offset
    if (lastEnd(start) + latenessMs <= watermark || (!restates && lastEnd(start) <= watermark)) {
      event.leave(Routes.Late, Reasons.lateForWindow(event.time, watermark, name))
    } else {
      val span = Span(start, start + slice)
      val pane = index.find(span).getOrElse(index.create(span))
      try { evaluator.check(event.row); evaluator.update(pane.buffer(evaluator), event.row) }
      catch { case failure: RowFailure => if (pane.isNew) index.remove(pane); throw failure }
      pane.isNew = false
      pane.arrived = math.max(pane.arrived, event.arrived)
      pane.dirty = true
      touched += start
      note(pane)
      event.leave(Routes.Absorbed, null)
    }
  }

  override def finish(watermark: Long, out: Outgoings): Unit = {
    now = watermark
    // Windows whose end has passed, but not their lateness, are told anew with what has come late.
    val late = touched.iterator.flatMap(s => ends(firstEnd(s), math.min(lastEnd(s), watermark))).filter(_ + latenessMs > watermark)
    if (restates) late.toArray.distinct.sorted.foreach(emit(_, out))
    index.schedule(timers, now, shared = true)
  }

  override def expire(watermark: Long, out: Outgoings): Unit = {
    now = watermark
    settle(out)
    index.schedule(timers, now, shared = true)
  }

  override def end(soon: Long): Unit = index.save()

  private def ends(from: Long, to: Long): Iterator[Long] = Iterator.iterate(from)(_ + slide).takeWhile(_ <= to)

  private def settle(out: Outgoings): Unit = {
    if (index.nextDue <= now) {
      val due = index.spans.flatMap(s => ends(math.max(firstEnd(s.start), afterSettled), math.min(lastEnd(s.start), now)))
      due.distinct.sorted.foreach(emit(_, out))
      index.setSettled(now)
      index.spans.foreach { s =>
        val pane = index.find(s).get
        if (lastEnd(s.start) + latenessMs <= now) index.remove(pane) else note(pane)
      }
      index.forget(now - latenessMs)
    } else if (now > KeyedOperator.NoWatermark) index.setSettled(now)
  }

  /** The first end beyond what has been settled. */
  private def afterSettled: Long =
    if (index.settled == Long.MinValue) Long.MinValue
    else (Math.floorDiv(index.settled - offset - size, slide) + 1) * slide + offset + size

  private def emit(end: Long, out: Outgoings): Unit = {
    val slices = index.overlapping(Span(end - size, end))
    // Slices that do not fit together, or an expression over the aggregates that fails: no event is to blame for either.
    try result.fill(end - size, end, merged(slices))
    catch { case failure: RowFailure =>
      out.deadLetter(Reasons.resultFailed(name, Span(end - size, end), failure.getCause))
      return
    }
    val arrived = slices.foldLeft(Long.MinValue)((latest, slice) => math.max(latest, slice.arrived))
    val before = index.told(end)
    val last = !restates || end + latenessMs <= now
    result.pane(Some(end - 1), before, if (before == 0L) Windows.OnTime else Windows.Late, last,
      if (before == 0L) Windows.Inserted else Windows.Updated, arrived)
    out.result(result.bytes)
    if (!last) index.tell(end, before + 1)
  }

  private def merged(slices: Seq[Pane]): InternalRow = {
    val buffer = evaluator.empty()
    slices.foreach { slice =>
      val bytes = slice.stored(evaluator)
      if (bytes != null) evaluator.merge(buffer, bytes)
    }
    buffer
  }

  private def note(pane: Pane): Unit = {
    val next = math.max(firstEnd(pane.start), afterSettled)
    index.note(pane, if (next <= lastEnd(pane.start)) next else lastEnd(pane.start) + latenessMs, Long.MaxValue)
  }
}

object SharedHops {
  def gcd(a: Long, b: Long): Long = if (b == 0) a else gcd(b, a % b)
}
