package org.apache.spark.sql.headrace

import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.ImplicitGroupingKeyTracker

/** Runs with the state of another key, then goes back to the one before. */
object ForKey {
  def apply[T](key: Array[Byte])(work: => T): T = {
    val before = ImplicitGroupingKeyTracker.getImplicitKeyOption
    ImplicitGroupingKeyTracker.setImplicitKey(key)
    try work finally before match {
      case Some(previous) => ImplicitGroupingKeyTracker.setImplicitKey(previous)
      case None => ImplicitGroupingKeyTracker.removeImplicitKey()
    }
  }
}
