package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeProjection}
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers.normalize
import org.apache.spark.sql.streaming.StatefulProcessorHandle
import org.apache.spark.sql.types.{StringType, StructType}

/**
 * Only the first event of an id passes (first in log order). A later one with the same key and id is a duplicate if
 * its event time lies within `withinMs` of the first one's; further away it counts as new, and is remembered instead.
 *
 * Late events are remembered too, so that the second copy of a late event is a duplicate and not late again. An event that
 * is older than the memory reaches back (watermark - withinMs) can't be judged and is late; and what is remembered from before
 * then counts no more, whether it has been cleared away by now or not.
 *
 * An event without an id is a dead letter: two of them are not the same event. One that fails in a later stage is not remembered, so
 * that it passes when it comes repaired.
 */
final class Dedupe(name: String, schema: StructType, idOrdinals: Array[Int], withinMs: Long) extends Stage {
  @transient private var timers: Timers = _
  @transient private var seen: IdSet = _
  @transient private lazy val idRow =
    UnsafeProjection.create(idOrdinals.map(i => normalize(BoundReference(i, schema(i).dataType, nullable = true))).toIndexedSeq)
  private val plainString = idOrdinals.length == 1 && schema(idOrdinals(0)).dataType == StringType
  /** Of the event that passed last. */
  @transient private var passed: Array[Byte] = _

  override def open(handle: StatefulProcessorHandle, own: Timers): Unit = {
    timers = own
    seen = new IdSet(MapNodeStore.open(handle, name))
  }

  override def begin(unknown: Boolean): Unit = seen.load(unknown)

  override def process(event: Event, watermark: Long, out: Outgoings): Unit = {
    val id = idOf(event)
    val horizon = watermark - withinMs
    if (id == null) event.leave(Routes.DeadLetter, Reasons.noId(name, idOrdinals.map(schema(_).name)))
    else if (event.time <= horizon) {
      event.leave(Routes.Late, Reasons.beyondMemory(event.time, watermark, withinMs, name))
    } else {
      val first = seen.find(id)
      // What is absent is before all horizons.
      if (first > horizon && math.abs(event.time - first) < withinMs) {
        event.leave(Routes.Duplicate, Reasons.duplicate(name))
      } else passed = id
    }
  }

  override def keep(event: Event): Unit = {
    seen.put(passed, event.time)
    // A timer that an event far ahead has asked for must not keep the ids of all others until then.
    if (seen.due == TimeTree.NoTimer || event.time + 2 * withinMs < seen.due) schedule(event.time + withinMs)
  }

  /** Null if a column of it is. */
  private def idOf(event: Event): Array[Byte] =
    if (plainString) { if (event.row.isNullAt(idOrdinals(0))) null else event.row.getUTF8String(idOrdinals(0)).getBytes }
    else {
      val id = idRow(event.row)
      if (id.anyNull) null else id.copy().getBytes
    }

  override def expire(watermark: Long, out: Outgoings): Unit = if (seen.due != TimeTree.NoTimer && seen.due <= watermark) {
    seen.prune(watermark - withinMs)
    if (!seen.isEmpty) schedule(math.max(seen.first + withinMs, watermark + withinMs / 8))
  }

  private def schedule(time: Long): Unit = { timers.register(time); seen.setDue(time) }

  override def end(soon: Long): Unit = seen.save()
}
