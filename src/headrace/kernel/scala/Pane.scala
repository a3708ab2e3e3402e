package org.apache.spark.sql.headrace

import java.nio.ByteBuffer

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.InternalRow

/** One window of one key: its bounds, what its trigger remembers, its aggregation buffer, and what of it has gone out. */
final class Pane(val id: Long, var start: Long, var end: Long, slots: Int) {
  /** The trigger has finished: what comes now is refused. */
  var closed = false
  /** The watermark has passed the end, and the result on time has gone out if there was to be one. */
  var onTime = false
  /** Events have come since the last result. */
  var fresh = false
  var index = 0L
  /** Of the events that the result's time depends on. */
  var earliest: Long = Long.MaxValue
  var latest: Long = Long.MinValue
  /** The latest record timestamp: what caused a result. */
  var arrived: Long = Long.MinValue
  val trigger = new Array[Long](slots)
  /** The last result that stands, as bytes; null if none does. */
  var emitted: Array[Byte] = _
  /** Results of windows that have merged into this one: withdrawn when this one gives its next result. */
  val orphans = new ArrayBuffer[Array[Byte]]

  private var live: InternalRow = _
  private var bytes: Array[Byte] = _
  var dirty = false
  /** Made for an event that has not gone in yet. */
  var isNew = true

  def span: Span = Span(start, end)

  def buffer(evaluator: AggregateEvaluator): InternalRow = {
    if (live == null) { live = if (bytes == null) evaluator.empty() else evaluator.load(bytes); bytes = null }
    live
  }

  /** The buffer as bytes; afterwards it is read from them again. */
  def stored(evaluator: AggregateEvaluator): Array[Byte] = {
    if (live != null) { bytes = evaluator.store(live); live = null }
    bytes
  }

  def clearBuffer(): Unit = { live = null; bytes = null; earliest = Long.MaxValue; latest = Long.MinValue }

  def write(out: ByteWriter, evaluator: AggregateEvaluator): Unit = {
    out.putByte((if (closed) 1 else 0) | (if (onTime) 2 else 0) | (if (fresh) 4 else 0))
    out.putLong(index)
    out.putLong(earliest)
    out.putLong(latest)
    out.putLong(arrived)
    trigger.foreach(out.putLong)
    Pane.put(out, stored(evaluator))
    Pane.put(out, emitted)
    out.putInt(orphans.length)
    orphans.foreach(Pane.put(out, _))
  }

  def read(in: ByteBuffer): Unit = {
    isNew = false
    val flags = in.get()
    closed = (flags & 1) != 0
    onTime = (flags & 2) != 0
    fresh = (flags & 4) != 0
    index = in.getLong()
    earliest = in.getLong()
    latest = in.getLong()
    arrived = in.getLong()
    var i = 0
    while (i < trigger.length) { trigger(i) = in.getLong(); i += 1 }
    bytes = Pane.get(in)
    emitted = Pane.get(in)
    i = in.getInt()
    while (i > 0) { orphans += Pane.get(in); i -= 1 }
  }
}

object Pane {
  def put(out: ByteWriter, bytes: Array[Byte]): Unit =
    if (bytes == null) out.putInt(-1) else { out.putInt(bytes.length); out.putBytes(bytes) }

  def get(in: ByteBuffer): Array[Byte] = {
    val length = in.getInt()
    if (length < 0) null else { val bytes = new Array[Byte](length); in.get(bytes); bytes }
  }
}
