package org.apache.spark.sql.headrace

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.classic.{Dataset => ClassicDataset}
import org.apache.spark.sql.execution.CodegenMode

/** Plans a stream as Spark does at the start of each batch, up to the generated code, and runs nothing. */
object Rehearsal {
  def plan(df: DataFrame): Unit = df.asInstanceOf[ClassicDataset[_]].queryExecution.explainString(CodegenMode)
}
