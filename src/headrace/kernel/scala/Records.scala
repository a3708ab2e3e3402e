package org.apache.spark.sql.headrace

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{functions => F, Column, DataFrame}
import org.apache.spark.sql.catalyst.expressions.{Alias, AttributeReference}
import org.apache.spark.sql.catalyst.plans.logical.{Expand, Project}
import org.apache.spark.sql.classic.{Dataset => ClassicDataset, ExpressionUtils, SparkSession}
import org.apache.spark.sql.types.StructType

/** The edges of a query: payloads to rows at one end, rows to records at the other. */
object Records {
  /** JSON bytes as a struct of the schema and a string field `reason` (see [[JsonDecode]]). */
  def fromJson(value: Column, schemaDdl: String, reason: String): Column = {
    // Every field may be absent; which ones must not be is the caller's business.
    val schema = StructType(StructType.fromDDL(schemaDdl).map(_.copy(nullable = true)))
    ExpressionUtils.column(JsonDecode(ExpressionUtils.expression(value), schema.asNullable, reason))
  }

  /** A struct as JSON bytes. */
  def toJson(df: DataFrame, struct: Column): Column =
    if (JsonEncode.supports(df.select(struct).schema.head.dataType)) {
      ExpressionUtils.column(JsonEncode(ExpressionUtils.expression(struct)))
    } else F.to_json(struct).cast("binary")

  /**
   * Each row once per slot, as records; a slot whose topic is null gives none. Spark's Expand does this without building
   * arrays to explode.
   */
  def expand(df: DataFrame, slots: java.util.List[java.util.List[Column]]): DataFrame = {
    val flat = slots.asScala.toSeq.flatMap(_.asScala.toSeq)
    // Selected once, so that Spark resolves the expressions; the projection itself is then taken apart.
    val Project(resolved, child) = df.select(flat: _*).asInstanceOf[ClassicDataset[_]].queryExecution.analyzed: @unchecked
    val output = TransactionalKafka.schema.map(f => AttributeReference(f.name, f.dataType, nullable = true)())
    val projections = resolved.map { case Alias(value, _) => value; case other => other }.grouped(output.length).toSeq
    val expanded = ClassicDataset.ofRows(df.sparkSession.asInstanceOf[SparkSession], Expand(projections, output, child))
    expanded.where(F.col("topic").isNotNull)
  }
}
