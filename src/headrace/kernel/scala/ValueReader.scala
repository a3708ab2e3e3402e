package org.apache.spark.sql.headrace

/** Reads one value from where the cursor stands. */
private[headrace] abstract class ValueReader {
  def read(in: ByteCursor): Any

  /** The same into a slot of a row, which holds numbers without boxes. */
  def into(in: ByteCursor, row: DecodedRow, slot: Int): Unit = {
    val value = read(in)
    if (value != null) row.update(slot, value)
  }
}

private[headrace] abstract class LongReader extends ValueReader {
  def long(in: ByteCursor): Long
  override def read(in: ByteCursor): Any = long(in)
  override def into(in: ByteCursor, row: DecodedRow, slot: Int): Unit = row.setLong(slot, long(in))
}

private[headrace] abstract class IntReader extends ValueReader {
  def int(in: ByteCursor): Int
  override def read(in: ByteCursor): Any = int(in)
  override def into(in: ByteCursor, row: DecodedRow, slot: Int): Unit = row.setInt(slot, int(in))
}

private[headrace] abstract class DoubleReader extends ValueReader {
  def double(in: ByteCursor): Double
  override def read(in: ByteCursor): Any = double(in)
  override def into(in: ByteCursor, row: DecodedRow, slot: Int): Unit = row.setDouble(slot, double(in))
}

/** Anything else. */
private[headrace] final class Computed(compute: ByteCursor => Any) extends ValueReader {
  override def read(in: ByteCursor): Any = compute(in)
}
