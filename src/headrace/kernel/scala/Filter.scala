package org.apache.spark.sql.headrace

import org.apache.spark.sql.streaming.StatefulProcessorHandle

/**
 * A `where` between two fused steps. Its condition was computed before the operator as a boolean column; the row leaves here, after
 * the steps that come before it, so that for example a row that `where` rejects still counts as the first of its id.
 */
final class Filter(ordinal: Int) extends Stage {
  override def open(handle: StatefulProcessorHandle, timers: Timers): Unit = ()
  override def begin(unknown: Boolean): Unit = ()
  override def process(event: Event, watermark: Long, out: Outgoings): Unit =
    if (event.row.isNullAt(ordinal) || !event.row.getBoolean(ordinal)) event.leave(Routes.Filtered, null)
  override def expire(watermark: Long, out: Outgoings): Unit = ()
  override def end(soon: Long): Unit = ()
}
