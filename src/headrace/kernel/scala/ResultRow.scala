package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.types.StructType
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** Builds the result rows of a window step: key, start, end, aggregates, then the columns of the pane. */
final class ResultRow(keySchema: StructType, resultSchema: StructType, evaluator: AggregateEvaluator) {
  private val keyWidth = keySchema.length
  private val firstOfPane = keyWidth + 2 + evaluator.width
  private val keyRow = new UnsafeRow(keyWidth)
  private val toUnsafe = UnsafeProjection.create(resultSchema)
  val row = new GenericInternalRow(resultSchema.length)

  def turnTo(key: Array[Byte]): Unit =
    if (keyWidth > 0) keyRow.pointTo(key, Platform.BYTE_ARRAY_OFFSET + KeyBytes.HashBytes, key.length - KeyBytes.HashBytes)

  /** Key, bounds and aggregates. The window that is all of time has no bounds. */
  def fill(start: Long, end: Long, buffer: InternalRow): Unit = {
    var i = 0
    while (i < keyWidth) { row.update(i, if (keyRow.isNullAt(i)) null else keyRow.get(i, keySchema(i).dataType)); i += 1 }
    val bounded = end != WindowAssigner.EndOfTime
    row.update(keyWidth, if (bounded) start * 1000L else null)
    row.update(keyWidth + 1, if (bounded) end * 1000L else null)
    evaluator.results(buffer, row, keyWidth + 2)
  }

  /** A window without an end may have no time. */
  def pane(time: Option[Long], index: Long, timing: UTF8String, last: Boolean, kind: UTF8String, arrived: Long): Unit = {
    row.update(firstOfPane, time.map(t => Long.box(t * 1000L)).orNull)
    row.update(firstOfPane + 1, index)
    row.update(firstOfPane + 2, timing)
    row.update(firstOfPane + 3, last)
    row.update(firstOfPane + 4, kind)
    row.update(firstOfPane + 5, arrived)
  }

  def bytes: Array[Byte] = toUnsafe(row).copy().getBytes

  /** Another kind of change of a row that went out before. */
  def again(bytes: Array[Byte], kind: UTF8String): Array[Byte] = {
    val old = new UnsafeRow(resultSchema.length)
    old.pointTo(bytes, bytes.length)
    val copy = new GenericInternalRow(old.toSeq(resultSchema).toArray[Any])
    copy.update(firstOfPane + 4, kind)
    toUnsafe(copy).copy().getBytes
  }
}
