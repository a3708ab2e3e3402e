package org.apache.spark.sql.headrace

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.ObjectMapper

import org.apache.spark.sql.{Column, DataFrame}
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction
import org.apache.spark.sql.catalyst.expressions.{Alias, AttributeReference, IsNotNull}
import org.apache.spark.sql.catalyst.plans.logical.{Expand, Filter, Project}
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

  /** What a column gives, or why it fails on a row, in which case the `step` is to blame. */
  def attempt(value: Column, step: String): Column = ExpressionUtils.column(Attempt(ExpressionUtils.expression(value), step))

  /** A list of SQL expressions, as JSON, and then columns. */
  def select(df: DataFrame, expressions: String, columns: java.util.List[Column]): DataFrame = {
    val listed = mapper.readValue(expressions, classOf[Array[String]]).toIndexedSeq.map(sql(df, _))
    df.select(listed ++ columns.asScala: _*)
  }

  /**
   * Each row once per slot, as records; a slot whose topic is null gives none. Spark's Expand does this without building
   * arrays to explode. A slot is a list of SQL expressions, one for each column of a record.
   */
  def expand(df: DataFrame, slots: String): DataFrame = {
    val flat = mapper.readValue(slots, classOf[Array[Array[String]]]).toIndexedSeq.flatMap(_.map(sql(df, _)))
    // Selected once, so that Spark resolves the expressions; the projection itself is then taken apart.
    val Project(resolved, child) = df.select(flat: _*).asInstanceOf[ClassicDataset[_]].queryExecution.analyzed: @unchecked
    val output = TransactionalKafka.schema.map(f => AttributeReference(f.name, f.dataType, nullable = true)())
    val projections = resolved.map { case Alias(value, _) => value; case other => other }.grouped(output.length).toSeq
    val records = Filter(IsNotNull(output.head), Expand(projections, output, child))
    ClassicDataset.ofRows(session(df), records)
  }

  private val mapper = new ObjectMapper

  private def session(df: DataFrame): SparkSession = df.sparkSession.asInstanceOf[SparkSession]

  /** An expression, in which there may be functions of the kernel that Spark does not know. */
  private def sql(df: DataFrame, text: String): Column =
    ExpressionUtils.column(session(df).sessionState.sqlParser.parseExpression(text).transform {
      case call: UnresolvedFunction if call.nameParts == ToJson => JsonEncode(call.arguments.head)
      case call: UnresolvedFunction if call.nameParts == ToPlace => Place(call.arguments)
    })

  private val ToJson = Seq("__hr_to_json")
  private val ToPlace = Seq("__hr_place")
}
