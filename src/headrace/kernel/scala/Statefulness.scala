package org.apache.spark.sql.headrace

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.classic.{Dataset => ClassicDataset}

/**
 * What a function given to `.apply` must not do: keep state of its own, or set a watermark. The keyed operator goes by the one watermark of its
 * query, that of the event time; beside a second one Spark goes by the lesser of the two, and rows that are on time could find their state gone.
 */
object Statefulness {
  /** The first such thing in a stream's plan, in the words of the DataFrame API; null if there is none. */
  def of(df: DataFrame): String = df.asInstanceOf[ClassicDataset[_]].queryExecution.analyzed.collectFirst {
    case _: EventTimeWatermark => "withWatermark"
    case distinct @ (_: Deduplicate | _: DeduplicateWithinWatermark | _: Distinct) if distinct.isStreaming => "dropDuplicates"
    case aggregate: Aggregate if aggregate.isStreaming => "an aggregation"
    case join: Join if join.left.isStreaming && join.right.isStreaming => "a join of two streams"
    case limit: GlobalLimit if limit.isStreaming => "limit"
    case state: LogicalPlan if state.isStreaming && Operators.contains(state.getClass.getSimpleName) => "an operator with state"
  }.orNull

  private val Operators =
    Set("FlatMapGroupsWithState", "TransformWithState", "FlatMapGroupsInPandasWithState", "TransformWithStateInPySpark")
}
