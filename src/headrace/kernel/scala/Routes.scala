package org.apache.spark.sql.headrace

/** Where a row goes. Every row that enters an operator leaves it with exactly one of these; none vanishes. */
object Routes {
  val Result = 0
  val Late = 1
  val Duplicate = 2
  val Quarantined = 3
  val DeadLetter = 4
  /** Taken out by a `where` between two fused steps: the user asked for it by name. */
  val Filtered = 5
  /** A claim about time, not an event: it moves the watermark or the clock, and ends here. */
  val Control = 6
  /** Went into a window, and comes out as a part of its results. No row has this route outside of an operator. */
  val Absorbed = 7
}
