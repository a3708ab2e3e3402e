package org.apache.spark.sql.headrace

import java.nio.ByteBuffer

/**
 * A sum of doubles without rounding error, kept as a few non-overlapping doubles (Shewchuk's expansions). The result is
 * the true sum rounded once, so it does not depend on the order or the grouping of the additions: the same events give the
 * same sum to the last bit in any mode and any batching, and equal Python's `math.fsum`.
 *
 * Infinities and NaN are kept apart, by the ordinary rules of floating point.
 */
final class ExactSum {
  private var parts = new Array[Double](4)
  private var size = 0
  private var special = 0.0
  private var hasSpecial = false

  def reset(): Unit = { size = 0; special = 0.0; hasSpecial = false }

  def add(value: Double): Unit = {
    if (value.isNaN || value.isInfinite) addSpecial(value)
    else {
      var x = value
      var kept = 0
      var i = 0
      while (i < size) {
        val y = parts(i)
        val swap = math.abs(x) < math.abs(y)
        val big = if (swap) y else x
        val small = if (swap) x else y
        val high = big + small
        val low = small - (high - big)
        if (low != 0.0) { parts(kept) = low; kept += 1 }
        x = high
        i += 1
      }
      size = kept
      if (x.isInfinite) addSpecial(x)
      else if (x != 0.0) push(x)
    }
  }

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

  private def push(value: Double): Unit = {
    if (size == parts.length) parts = java.util.Arrays.copyOf(parts, size * 2)
    parts(size) = value
    size += 1
  }

  /** The sum, rounded once (half to even). */
  def value: Double = {
    if (hasSpecial) return special
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

  /** What rounding left out of `value`, itself rounded once: together they carry about 106 bits. */
  def remainder: Double = {
    if (hasSpecial || size == 0) return 0.0
    val rest = new ExactSum
    rest.merge(this)
    rest.add(-value)
    rest.value
  }

  def merge(other: ExactSum): Unit = {
    var i = 0
    while (i < other.size) { add(other.parts(i)); i += 1 }
    if (other.hasSpecial) addSpecial(other.special)
  }

  def write(out: ByteWriter): Unit = {
    out.putInt(if (hasSpecial) -1 - size else size)
    if (hasSpecial) out.putDouble(special)
    var i = 0
    while (i < size) { out.putDouble(parts(i)); i += 1 }
  }

  def mergeFrom(in: ByteBuffer): Unit = {
    val tag = in.getInt()
    if (tag < 0) addSpecial(in.getDouble())
    var left = if (tag < 0) -1 - tag else tag
    while (left > 0) { add(in.getDouble()); left -= 1 }
  }
}
