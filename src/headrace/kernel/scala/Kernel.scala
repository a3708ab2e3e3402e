package org.apache.spark.sql.headrace

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import org.apache.spark.sql.{functions => F, Column, DataFrame, Encoders}
import org.apache.spark.sql.classic.ExpressionUtils
import org.apache.spark.sql.streaming.{OutputMode, TimeMode}
import org.apache.spark.sql.types.{NullType, StructField, StructType}

/** What Python calls. One method per operator; a spec is JSON, so that the doorway stays narrow. */
object Kernel {
  /**
   * Runs a keyed operator over `df`.
   *
   * `df` has the user's columns and, under the names that the spec gives: `route` (int), `time` (bigint, ms), `partition` (int), `offset`
   * (bigint) and `eventTime` (timestamp, null where the row must not move the watermark). The result has the columns of `df`
   * but `eventTime`, the stages' result columns (null off the result route), `route`, and `reason`.
   */
  def keyed(df: DataFrame, specJson: String): DataFrame = {
    val spec = new ObjectMapper().readTree(specJson)
    val eventTime = spec.get("eventTime").asText
    val route = spec.get("route").asText
    // Late rows: Spark drops them before they reach an operator that sees the watermarked column. Projected away, the watermark
    // runs on and late rows come in; the stages decide what to do with them. (Held by the test `late rows reach the kernel`.)
    val columns = df.columns.filterNot(_ == eventTime)
    val schema = StructType(df.schema.filterNot(_.name == eventTime))
    val fused = new FusedSteps(schema, spec.get("stages").elements().asScala.toSeq)

    val key = keyBytes(strings(spec.get("key")).map(F.col))
    val position = keyBytes(Seq(F.col(spec.get("partition").asText), F.col(spec.get("offset").asText)))
    val incoming = df
      .withWatermark(eventTime, s"${spec.get("outOfOrderMs").asLong} milliseconds")
      .select(
        // Rows that only pass through are spread over the partitions by their position; their key may be null.
        F.when(F.col(route) === Routes.Result, key).otherwise(position).as("key"),
        bytes(columns.toIndexedSeq.map(F.col)).as("row"))
    val layout = RowLayout(
      schema.length, schema.fieldIndex(route), schema.fieldIndex(spec.get("time").asText),
      schema.fieldIndex(spec.get("partition").asText), schema.fieldIndex(spec.get("offset").asText))
    val operator = new KeyedOperator(fused.stages, layout, fused.resultSchema)
    val outgoing = incoming
      .groupBy("key").as[Array[Byte], Incoming](Encoders.BINARY, Encoders.product[Incoming])
      .transformWithState(operator, TimeMode.EventTime(), OutputMode.Update())(Encoders.product[Outgoing])
      .toDF()

    outgoing
      .select(F.col("route"), row(F.col("row"), schema).as("in"), row(F.col("result"), fused.resultSchema).as("out"), F.col("reason"))
      .select(
        columns.toIndexedSeq.filterNot(_ == route).map(c => F.col("in").getField(c).as(c)) ++
          fused.resultSchema.fieldNames.toIndexedSeq.map(c => F.col("out").getField(c).as(c)) ++
          Seq(F.col("route").as(route), F.col("reason").as(spec.get("reason").asText)): _*)
  }

  private def bytes(columns: Seq[Column]): Column =
    ExpressionUtils.column(RowBytes(ExpressionUtils.expression(F.struct(columns: _*))))

  private def keyBytes(columns: Seq[Column]): Column =
    ExpressionUtils.column(KeyBytes(ExpressionUtils.expression(F.struct(columns: _*))))

  private def row(bytes: Column, schema: StructType): Column =
    ExpressionUtils.column(BytesRow(ExpressionUtils.expression(bytes), schema))

  private[headrace] def strings(node: JsonNode): Seq[String] = node.elements().asScala.map(_.asText).toSeq
}

/** The stages of one operator, from their specs; each sees the same input row and owns a slice of the result. */
private final class FusedSteps(schema: StructType, specs: Seq[JsonNode]) {
  private var fields = Vector.empty[StructField]

  val stages: Array[Stage] = specs.map { spec =>
    spec.get("kind").asText match {
      case "dedupe" =>
        new Dedupe(spec.get("name").asText, schema, ordinals(spec.get("columns")), spec.get("withinMs").asLong): Stage
      case "filter" => new Filter(schema.fieldIndex(spec.get("column").asText)): Stage
      case "rolling" => rolling(spec): Stage
    }
  }.toArray

  def resultSchema: StructType = StructType(fields)

  private def rolling(spec: JsonNode): Rolling = {
    val first = fields.length
    val windows = spec.get("windows").elements().asScala.toArray.map { w =>
      val column = w.get("column")
      val ordinal = if (column.isNull) -1 else schema.fieldIndex(column.asText)
      val function = w.get("function").asText
      val resultType = WindowAggregate.resultType(function, if (ordinal < 0) NullType else schema(ordinal).dataType)
      fields :+= StructField(w.get("name").asText, resultType)
      WindowAggregate(function, ordinal, w.get("windowMs").asLong, resultType)
    }
    val latest = spec.get("latest").elements().asScala.toArray.map { l =>
      val at = ordinals(l.get("columns"))
      val struct = StructType(at.map(i => schema(i).copy(nullable = true)))
      fields :+= StructField(l.get("name").asText, struct)
      LatestEvent(at, l.get("back").asInt, l.get("withinMs").asLong, struct)
    }
    new Rolling(spec.get("name").asText, schema, windows, latest, first)
  }

  private def ordinals(columns: JsonNode): Array[Int] = Kernel.strings(columns).map(schema.fieldIndex).toArray
}
