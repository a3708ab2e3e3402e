package org.apache.spark.sql.headrace

import java.math.{BigDecimal => JBigDecimal, BigInteger}
import java.nio.ByteBuffer

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.util.{HyperLogLogPlusPlusHelper, TypeUtils}
import org.apache.spark.sql.types._

/**
 * A quantity over a set of rows that can be added to row by row, written, and merged. None depends on the order of the rows, so a
 * result is the same however the rows were grouped.
 */
abstract class Measure {
  def reset(): Unit
  def add(row: UnsafeRow): Unit
  def write(out: ByteWriter): Unit
  def mergeFrom(in: ByteBuffer): Unit
}

/** Which measure of which stored column; two aggregates that need the same one share it. */
case class MeasureSpec(kind: String, ordinal: Int, dataType: DataType) {
  def create(): Measure = kind match {
    case "count" => new NonNullCount(ordinal)
    case "sum" => new DoubleSum(ordinal, dataType)
    case "squares" => new SquareSum(ordinal, dataType)
    case "integers" => new IntegerSum(ordinal, dataType)
    case "decimals" => new DecimalSum(ordinal, dataType.asInstanceOf[DecimalType])
    case "min" => new Extreme(ordinal, dataType, -1)
    case "max" => new Extreme(ordinal, dataType, 1)
    case "distinct" => new DistinctCount(ordinal, dataType)
  }
}

object Numbers {
  def asDouble(row: InternalRow, ordinal: Int, dataType: DataType): Double = dataType match {
    case DoubleType => row.getDouble(ordinal)
    case FloatType => row.getFloat(ordinal).toDouble
    case d: DecimalType => row.getDecimal(ordinal, d.precision, d.scale).toDouble
    case _ => asLong(row, ordinal, dataType).toDouble
  }

  def asLong(row: InternalRow, ordinal: Int, dataType: DataType): Long = dataType match {
    case LongType => row.getLong(ordinal)
    case IntegerType => row.getInt(ordinal).toLong
    case ShortType => row.getShort(ordinal).toLong
    case ByteType => row.getByte(ordinal).toLong
  }
}

final class NonNullCount(ordinal: Int) extends Measure {
  var value = 0L
  override def reset(): Unit = value = 0L
  override def add(row: UnsafeRow): Unit = if (!row.isNullAt(ordinal)) value += 1
  override def write(out: ByteWriter): Unit = out.putLong(value)
  override def mergeFrom(in: ByteBuffer): Unit = value += in.getLong()
}

final class DoubleSum(ordinal: Int, dataType: DataType) extends Measure {
  val sum = new ExactSum
  private val isDouble = dataType == DoubleType
  override def reset(): Unit = sum.reset()
  override def add(row: UnsafeRow): Unit = if (!row.isNullAt(ordinal)) {
    sum.add(if (isDouble) row.getDouble(ordinal) else Numbers.asDouble(row, ordinal, dataType))
  }
  override def write(out: ByteWriter): Unit = sum.write(out)
  override def mergeFrom(in: ByteBuffer): Unit = sum.mergeFrom(in)
}

final class SquareSum(ordinal: Int, dataType: DataType) extends Measure {
  val sum = new ExactSum
  override def reset(): Unit = sum.reset()
  override def add(row: UnsafeRow): Unit = if (!row.isNullAt(ordinal)) sum.addSquare(Numbers.asDouble(row, ordinal, dataType))
  override def write(out: ByteWriter): Unit = sum.write(out)
  override def mergeFrom(in: ByteBuffer): Unit = sum.mergeFrom(in)
}

/** A sum of integers in 128 bits, so that it overflows only when the result does. */
final class IntegerSum(ordinal: Int, dataType: DataType) extends Measure {
  private var high = 0L
  private var low = 0L

  override def reset(): Unit = { high = 0L; low = 0L }
  override def add(row: UnsafeRow): Unit = if (!row.isNullAt(ordinal)) {
    val value = Numbers.asLong(row, ordinal, dataType)
    plus(value >> 63, value)
  }

  private def plus(otherHigh: Long, otherLow: Long): Unit = {
    val sum = low + otherLow
    val carry = if (java.lang.Long.compareUnsigned(sum, low) < 0) 1L else 0L
    low = sum
    high += otherHigh + carry
  }

  override def write(out: ByteWriter): Unit = { out.putLong(high); out.putLong(low) }
  override def mergeFrom(in: ByteBuffer): Unit = plus(in.getLong(), in.getLong())

  def value: Long =
    if (high == (low >> 63)) low
    else throw new ArithmeticException("the sum does not fit a 64-bit integer")
}

final class DecimalSum(ordinal: Int, dataType: DecimalType) extends Measure {
  private var unscaled = BigInteger.ZERO
  override def reset(): Unit = unscaled = BigInteger.ZERO
  override def add(row: UnsafeRow): Unit = if (!row.isNullAt(ordinal)) {
    unscaled = unscaled.add(row.getDecimal(ordinal, dataType.precision, dataType.scale).toJavaBigDecimal.unscaledValue())
  }
  override def write(out: ByteWriter): Unit = {
    val bytes = unscaled.toByteArray
    out.putInt(bytes.length)
    out.putBytes(bytes)
  }
  override def mergeFrom(in: ByteBuffer): Unit = {
    val bytes = new Array[Byte](in.getInt())
    in.get(bytes)
    unscaled = unscaled.add(new BigInteger(bytes))
  }

  def value(result: DecimalType): Decimal = {
    val exact = Decimal(new JBigDecimal(unscaled, dataType.scale))
    if (exact.changePrecision(result.precision, result.scale)) exact
    else throw new ArithmeticException(s"the sum does not fit ${result.simpleString}")
  }
}

/** The least (sign -1) or greatest (sign 1) value in Spark's own order of the type. */
final class Extreme(ordinal: Int, dataType: DataType, sign: Int) extends Measure {
  private val ordering = TypeUtils.getInterpretedOrdering(dataType)
  private val toUnsafe = UnsafeProjection.create(Array(dataType))
  private val stored = new UnsafeRow(1)
  private val holder = new GenericInternalRow(1)
  var value: Any = _

  override def reset(): Unit = value = null
  override def add(row: UnsafeRow): Unit = if (!row.isNullAt(ordinal)) {
    val candidate = row.get(ordinal, dataType)
    if (better(candidate)) value = InternalRow.copyValue(candidate)
  }
  private def better(candidate: Any): Boolean = value == null || ordering.compare(candidate, value) * sign > 0

  override def write(out: ByteWriter): Unit = if (value == null) out.putInt(0) else {
    holder.update(0, value)
    val bytes = toUnsafe(holder).getBytes
    out.putInt(bytes.length)
    out.putBytes(bytes)
  }
  override def mergeFrom(in: ByteBuffer): Unit = {
    val length = in.getInt()
    if (length > 0) {
      val bytes = new Array[Byte](length)
      in.get(bytes)
      stored.pointTo(bytes, length)
      val candidate = stored.get(0, dataType)
      if (better(candidate)) value = candidate
    }
  }
}

/** Spark's own HyperLogLog++ at its default precision: the estimate equals `approx_count_distinct` of the same rows. */
final class DistinctCount(ordinal: Int, dataType: DataType) extends Measure {
  private val helper = new HyperLogLogPlusPlusHelper(0.05)
  private val words = helper.numWords
  private val registers = new GenericInternalRow(words)
  private val other = new GenericInternalRow(words)
  private var empty = true
  reset()

  override def reset(): Unit = {
    var i = 0
    while (i < words) { registers.setLong(i, 0L); i += 1 }
    empty = true
  }
  override def add(row: UnsafeRow): Unit = if (!row.isNullAt(ordinal)) {
    helper.update(registers, 0, row.get(ordinal, dataType), dataType)
    empty = false
  }
  override def write(out: ByteWriter): Unit = {
    out.putByte(if (empty) 0 else 1)
    var i = 0
    while (!empty && i < words) { out.putLong(registers.getLong(i)); i += 1 }
  }
  override def mergeFrom(in: ByteBuffer): Unit = if (in.get() != 0) {
    var i = 0
    while (i < words) { other.setLong(i, in.getLong()); i += 1 }
    helper.merge(registers, other, 0, 0)
    empty = false
  }

  def value: Long = helper.query(registers, 0)
}
