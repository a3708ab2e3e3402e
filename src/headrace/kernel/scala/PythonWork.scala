package org.apache.spark.sql.headrace

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression
import org.apache.spark.sql.classic.{Dataset => ClassicDataset}

/** What a function given to `.apply` hands to Python workers: real time does not allow it, and says so late and in words of its own. */
object PythonWork {
  /** The first such thing in a plan; null if there is none. */
  def of(df: DataFrame): String = {
    val plan = df.asInstanceOf[ClassicDataset[_]].queryExecution.analyzed
    // A static table may be made with it.
    val functions = plan.collect { case node if node.isStreaming => node.expressions.flatMap(_.collect { case f: PythonFuncExpression => f.name }) }.flatten
    plan.collectFirst { case node if node.isStreaming && Operators.contains(node.nodeName) => node.nodeName }.map(Operators)
      .orElse(functions.headOption.map(name => s"the Python function `$name`")).orNull
  }

  private val Operators = Map(
    "MapInPandas" -> "mapInPandas", "MapInArrow" -> "mapInArrow", "FlatMapGroupsInPandas" -> "applyInPandas",
    "FlatMapGroupsInArrow" -> "applyInArrow", "FlatMapCoGroupsInPandas" -> "applyInPandas", "FlatMapCoGroupsInArrow" -> "applyInArrow")
}
