package org.apache.spark.sql.headrace

import java.math.{BigDecimal => JBigDecimal}
import java.nio.ByteBuffer

/**
 * A sum of doubles without rounding error. The result is the true sum rounded once, so it does not depend on the order or the
 * grouping of the additions: the same events give the same sum to the last bit in any mode and any batching, and equal Python's
 * `math.fsum`. A sum beyond a double's range is infinite, but only the final one: on the way it may be.
 *
 * Infinities and NaN are kept apart, by the ordinary rules of floating point.
 */
final class ExactSum {
  import ExactSum._

  private val ordinary = new Expansion
  /** Values so large that adding some of them could overflow, scaled down by a power of two, which is exact. */
  private val large = new Expansion
  private var special = 0.0
  private var hasSpecial = false

  def reset(): Unit = { ordinary.size = 0; large.size = 0; special = 0.0; hasSpecial = false }

  def add(value: Double): Unit =
    if (value.isNaN || value.isInfinite) addSpecial(value)
    else if (math.abs(value) >= LargeFrom) large.add(value * DownScale)
    else ordinary.add(value)

  /** Adds value * value exactly: the product and its rounding error are two doubles. */
  def addSquare(value: Double): Unit = {
    val high = value * value
    add(high)
    if (!high.isInfinite && !high.isNaN) add(Math.fma(value, value, -high))
  }

  private def addSpecial(value: Double): Unit = {
    special = if (hasSpecial) special + value else value
    hasSpecial = true
  }

  /** The sum, rounded once (half to even). */
  def value: Double =
    if (hasSpecial) special
    else if (large.size == 0) ordinary.value
    else {
      val all = new Expansion
      all.addAll(large, 1.0)
      all.addAll(ordinary, DownScale)
      // Too small to be scaled, but it may be what decides a tie: any value below all others does that as well.
      val below = ordinary.greatestBelow(ScalableFrom)
      if (below != 0.0) all.add(math.copySign(Double.MinPositiveValue, below))
      all.value * UpScale
    }

  /** The sum itself. Only of a finite one. */
  def exact: JBigDecimal = ordinary.exact.add(large.exact.multiply(new JBigDecimal(UpScale)))

  def write(out: ByteWriter): Unit = {
    out.putByte(if (hasSpecial) 1 else 0)
    if (hasSpecial) out.putDouble(special)
    ordinary.write(out)
    large.write(out)
  }

  def mergeFrom(in: ByteBuffer): Unit = {
    if (in.get() != 0) addSpecial(in.getDouble())
    ordinary.mergeFrom(in)
    large.mergeFrom(in)
  }
}

object ExactSum {
  private val LargeFrom = math.pow(2, 900)
  private val DownScale = math.pow(2, -200)
  private val UpScale = math.pow(2, 200)
  /** Down from here, scaling would lose bits. */
  private[headrace] val ScalableFrom = math.pow(2, -800)
}

/** A sum as a few doubles that do not overlap (Shewchuk's expansions), least first, none of them zero. */
private final class Expansion {
  private var parts = new Array[Double](4)
  var size = 0

  def add(value: Double): Unit = {
    var x = value
    var kept = 0
    var i = 0
    while (i < size) {
      // The sum and its rounding error, whichever of the two is greater: a branch on that would be guessed wrong half the time.
      val y = parts(i)
      val high = x + y
      val ofY = high - x
      val low = (x - (high - ofY)) + (y - ofY)
      if (low != 0.0) { parts(kept) = low; kept += 1 }
      x = high
      i += 1
    }
    size = kept
    if (x != 0.0) {
      if (size == parts.length) parts = java.util.Arrays.copyOf(parts, size * 2)
      parts(size) = x
      size += 1
    }
  }

  def addAll(other: Expansion, scale: Double): Unit = {
    var i = 0
    while (i < other.size) {
      val part = other.parts(i)
      if (scale == 1.0 || math.abs(part) >= ExactSum.ScalableFrom) add(part * scale)
      i += 1
    }
  }

  /** The greatest part below a bound, by its absolute value; zero if there is none. */
  def greatestBelow(bound: Double): Double = {
    var i = size - 1
    while (i >= 0 && math.abs(parts(i)) >= bound) i -= 1
    if (i < 0) 0.0 else parts(i)
  }

  def exact: JBigDecimal = {
    var sum = JBigDecimal.ZERO
    var i = 0
    while (i < size) { sum = sum.add(new JBigDecimal(parts(i))); i += 1 }
    sum
  }

  def value: Double = {
    if (size == 0) return 0.0
    var n = size - 1
    var high = parts(n)
    var low = 0.0
    while (n > 0 && low == 0.0) {
      val x = high
      n -= 1
      val y = parts(n)
      high = x + y
      low = y - (high - x)
    }
    // `high` is rounded by the part below it; a tie is decided by the parts further down.
    if (n > 0 && ((low < 0.0 && parts(n - 1) < 0.0) || (low > 0.0 && parts(n - 1) > 0.0))) {
      val y = low * 2.0
      val x = high + y
      if (y == x - high) high = x
    }
    high
  }

  def write(out: ByteWriter): Unit = {
    out.putInt(size)
    var i = 0
    while (i < size) { out.putDouble(parts(i)); i += 1 }
  }

  def mergeFrom(in: ByteBuffer): Unit = {
    var left = in.getInt()
    while (left > 0) { add(in.getDouble()); left -= 1 }
  }
}
