package org.apache.spark.sql.headrace

import java.util.{Map => JMap}

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.classic.{Dataset => ClassicDataset}
import org.apache.spark.sql.execution.FormattedMode

/** Plans a stream as Spark does at the start of each batch, with the settings of its query, describes the plan, and runs nothing. */
final class Rehearsal(df: DataFrame, settings: JMap[String, String]) {
  private val original = df.asInstanceOf[ClassicDataset[_]]
  private val session = original.sparkSession.cloneSession()
  settings.forEach((name, value) => session.conf.set(name, value))
  private val stream = ClassicDataset.ofRows(session, original.logicalPlan)

  def plan(): Unit = session.withActive(stream.queryExecution.explainString(FormattedMode))
}
