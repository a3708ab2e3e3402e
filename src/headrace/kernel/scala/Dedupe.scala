package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeProjection}
import org.apache.spark.sql.streaming.StatefulProcessorHandle
import org.apache.spark.sql.types.{StringType, StructType}

/**
 * Only the first event of an id passes (first in log order). A later one with the same key and id is a duplicate if
 * its event time lies within `withinMs` of the first one's; further away it counts as new, and is remembered instead.
 *
 * Late events are remembered too, so that the second copy of a late event is a duplicate and not late again. An event that
 * is older than the memory reaches back (watermark - withinMs) can't be judged and is late.
 */
final class Dedupe(name: String, schema: StructType, idOrdinals: Array[Int], withinMs: Long) extends Stage {
  @transient private var timers: Timers = _
  @transient private var seen: IdSet = _
  @transient private lazy val idRow =
    UnsafeProjection.create(idOrdinals.map(i => BoundReference(i, schema(i).dataType, nullable = true)).toIndexedSeq)
  private val plainString = idOrdinals.length == 1 && schema(idOrdinals(0)).dataType == StringType

  override def open(handle: StatefulProcessorHandle, own: Timers): Unit = {
    timers = own
    seen = new IdSet(MapNodeStore.open(handle, name))
  }

  override def begin(unknown: Boolean): Unit = seen.load(unknown)

  override def process(event: Event, watermark: Long, out: Outgoings): Unit = {
    val id = idOf(event)
    val horizon = watermark - withinMs
    if (event.time <= horizon) {
      event.leave(Routes.Late, Reasons.beyondMemory(event.time, watermark, withinMs, name))
    } else {
      val first = seen.find(id)
      if (first != IdSet.Absent && math.abs(event.time - first) < withinMs) {
        event.leave(Routes.Duplicate, Reasons.duplicate(name))
      } else {
        seen.put(id, event.time)
        if (seen.due == TimeTree.NoTimer) schedule(event.time + withinMs)
      }
    }
  }

  private def idOf(event: Event): Array[Byte] =
    if (plainString && !event.row.isNullAt(idOrdinals(0))) event.row.getUTF8String(idOrdinals(0)).getBytes
    else idRow(event.row).copy().getBytes

  override def expire(watermark: Long, out: Outgoings): Unit = if (seen.due != TimeTree.NoTimer && seen.due <= watermark) {
    seen.prune(watermark - withinMs)
    if (!seen.isEmpty) schedule(math.max(seen.first + withinMs, watermark + withinMs / 8))
  }

  private def schedule(time: Long): Unit = seen.setDue(timers.register(time))

  override def end(soon: Long): Unit = seen.save()
}
