package org.apache.spark.sql.headrace

import java.nio.ByteBuffer

import scala.collection.mutable
import scala.collection.mutable.ArrayBuffer

/**
 * The windows of one key. Node 0 lists them with their bounds and the times at which they want attention; each window is a node of its own, so
 * that an event reads and writes only the windows it is in.
 */
final class PaneIndex(store: NodeStore, slots: Int, evaluator: AggregateEvaluator) {
  private final class Entry(val id: Long, var start: Long, var end: Long, var due: Long, var clock: Long)

  private val entries = new ArrayBuffer[Entry]
  private val loaded = mutable.LongMap.empty[Pane]
  private val writer = new ByteWriter(1024)
  private var nextId = 1L
  private var stored = false
  private var changed = false
  /** The event-time timer that is registered; `TimeTree.NoTimer` if none is. */
  private var timer: Long = TimeTree.NoTimer
  /** The processing time that is noted with the clock; Long.MaxValue if none is. */
  var clock: Long = Long.MaxValue

  /** How far the watermark had come when windows were last attended to; Long.MinValue if never. */
  var settled: Long = Long.MinValue
  /** Of windows that may be told again: how often they were, by their end. */
  private val tellings = mutable.LongMap.empty[Long]

  def load(unknown: Boolean): Unit = {
    entries.clear()
    tellings.clear()
    settled = Long.MinValue
    loaded.clear()
    changed = false
    val bytes = if (unknown) null else store.get(0L)
    stored = bytes != null
    nextId = 1L
    timer = TimeTree.NoTimer
    clock = Long.MaxValue
    if (stored) {
      val in = ByteBuffer.wrap(bytes)
      nextId = in.getLong()
      timer = in.getLong()
      clock = in.getLong()
      settled = in.getLong()
      var left = in.getInt()
      while (left > 0) { tellings.update(in.getLong(), in.getLong()); left -= 1 }
      left = in.getInt()
      while (left > 0) {
        entries += new Entry(in.getLong(), in.getLong(), in.getLong(), in.getLong(), in.getLong())
        left -= 1
      }
    }
  }

  def save(): Unit = {
    loaded.valuesIterator.filter(_.dirty).foreach { pane =>
      writer.clear()
      pane.write(writer, evaluator)
      store.put(pane.id, writer.toBytes)
    }
    if (entries.isEmpty) { if (stored) store.remove(0L) }
    else if (changed) {
      writer.clear()
      writer.putLong(nextId)
      writer.putLong(timer)
      writer.putLong(clock)
      writer.putLong(settled)
      writer.putInt(tellings.size)
      tellings.foreach { case (end, times) => writer.putLong(end); writer.putLong(times) }
      writer.putInt(entries.length)
      entries.foreach { e =>
        writer.putLong(e.id); writer.putLong(e.start); writer.putLong(e.end); writer.putLong(e.due); writer.putLong(e.clock)
      }
      store.put(0L, writer.toBytes)
    }
  }

  /** Sees to it that a timer is registered for what is due next. One that the watermark has reached is gone. */
  def schedule(timers: Timers, watermark: Long, shared: Boolean): Unit = {
    if (timer <= watermark) setTimer(TimeTree.NoTimer)
    val due = nextDue
    if (due != Long.MaxValue && (timer == TimeTree.NoTimer || due < timer)) {
      timers.registerExactly(due, shared)
      setTimer(due)
    }
  }

  private def setTimer(time: Long): Unit = if (timer != time) { timer = time; changed = true }
  def setClock(time: Long): Unit = if (clock != time) { clock = time; changed = true }

  def setSettled(time: Long): Unit = if (settled < time) { settled = time; changed = true }
  def told(end: Long): Long = tellings.getOrElse(end, 0L)
  def tell(end: Long, times: Long): Unit = { tellings.update(end, times); changed = true }
  def forget(upTo: Long): Unit = tellings.filterInPlace((end, _) => end > upTo)
  def spans: Seq[Span] = entries.map(e => Span(e.start, e.end)).toSeq

  def nextDue: Long = entries.foldLeft(Long.MaxValue)((least, e) => math.min(least, e.due))
  def nextClock: Long = entries.foldLeft(Long.MaxValue)((least, e) => math.min(least, e.clock))

  def find(span: Span): Option[Pane] =
    entries.find(e => e.start == span.start && e.end == span.end).map(e => pane(e))

  def dueAt(watermark: Long): Seq[Pane] = entries.filter(_.due <= watermark).sortBy(_.end).map(pane).toSeq
  def clockAt(now: Long): Seq[Pane] = entries.filter(_.clock <= now).map(pane).toSeq
  def overlapping(span: Span): Seq[Pane] = entries.filter(e => e.start < span.end && span.start < e.end).map(pane).toSeq

  def create(span: Span): Pane = {
    val pane = new Pane(nextId, span.start, span.end, slots)
    nextId += 1
    entries += new Entry(pane.id, span.start, span.end, Long.MaxValue, Long.MaxValue)
    loaded.update(pane.id, pane)
    changed = true
    pane
  }

  def remove(pane: Pane): Unit = {
    entries.filterInPlace(_.id != pane.id)
    loaded.remove(pane.id)
    store.remove(pane.id)
    changed = true
  }

  /** Notes when a window wants attention. */
  def note(pane: Pane, due: Long, clockDue: Long): Unit = {
    val e = entry(pane)
    if (e.due != due || e.clock != clockDue) { e.due = due; e.clock = clockDue; changed = true }
  }

  /** Gives a session other bounds; at once, since the next event of the batch is looked up by them. */
  def resize(pane: Pane, span: Span): Unit = {
    val e = entry(pane)
    e.start = span.start
    e.end = span.end
    pane.start = span.start
    pane.end = span.end
    changed = true
  }

  private def entry(pane: Pane): Entry = entries.find(_.id == pane.id).get

  private def pane(e: Entry): Pane = loaded.getOrElseUpdate(e.id, {
    val pane = new Pane(e.id, e.start, e.end, slots)
    pane.read(ByteBuffer.wrap(store.get(e.id)))
    pane
  })
}
