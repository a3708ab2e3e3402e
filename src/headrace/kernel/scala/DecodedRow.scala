package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.expressions.BaseGenericInternalRow
import org.apache.spark.unsafe.types.UTF8String

/** A row whose numbers are not boxed: a decoder fills one per record, and boxes were a good part of its cost. */
private[headrace] final class DecodedRow(width: Int) extends BaseGenericInternalRow {
  // A number is in `numbers`, marked in `values` by the box below; everything else is in `values`. Null is null.
  private val values = new Array[Any](width)
  private val numbers = new Array[Long](width)

  import DecodedRow._

  override def numFields: Int = width
  override def isNullAt(slot: Int): Boolean = values(slot) == null
  override def setNullAt(slot: Int): Unit = values(slot) = null
  override def update(slot: Int, value: Any): Unit = values(slot) = value

  override def setLong(slot: Int, value: Long): Unit = { values(slot) = IsLong; numbers(slot) = value }
  override def setInt(slot: Int, value: Int): Unit = { values(slot) = IsInt; numbers(slot) = value.toLong }
  override def setDouble(slot: Int, value: Double): Unit = { values(slot) = IsDouble; numbers(slot) = java.lang.Double.doubleToRawLongBits(value) }

  override def getLong(slot: Int): Long = if (values(slot).isInstanceOf[Mark]) numbers(slot) else values(slot).asInstanceOf[Long]
  override def getInt(slot: Int): Int = if (values(slot).isInstanceOf[Mark]) numbers(slot).toInt else values(slot).asInstanceOf[Int]
  override def getDouble(slot: Int): Double =
    if (values(slot).isInstanceOf[Mark]) java.lang.Double.longBitsToDouble(numbers(slot)) else values(slot).asInstanceOf[Double]

  override def getUTF8String(slot: Int): UTF8String = values(slot).asInstanceOf[UTF8String]

  override protected def genericGet(slot: Int): Any = {
    val value = values(slot)
    if (!value.isInstanceOf[Mark]) value
    else if (value.asInstanceOf[AnyRef] eq IsLong) numbers(slot)
    else if (value.asInstanceOf[AnyRef] eq IsInt) numbers(slot).toInt
    else java.lang.Double.longBitsToDouble(numbers(slot))
  }
}

private object DecodedRow {
  final class Mark
  val IsLong = new Mark
  val IsInt = new Mark
  val IsDouble = new Mark
}
