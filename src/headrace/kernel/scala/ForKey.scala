package org.apache.spark.sql.headrace

import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.ImplicitGroupingKeyTracker

/** Runs with the state of another key, then goes back to the current one. */
object ForKey {
  def apply[T](key: Array[Byte], current: Array[Byte])(work: => T): T = {
    ImplicitGroupingKeyTracker.setImplicitKey(key)
    try work finally ImplicitGroupingKeyTracker.setImplicitKey(current)
  }
}
