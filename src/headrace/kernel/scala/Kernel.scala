package org.apache.spark.sql.headrace

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import org.apache.spark.sql.{functions => F, Column, DataFrame, Encoders, Row}
import org.apache.spark.sql.catalyst.expressions.{Alias, AttributeSeq, BindReferences, Expression}
import org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions
import org.apache.spark.sql.catalyst.plans.logical.Project
import org.apache.spark.sql.catalyst.util.quoteIdentifier
import org.apache.spark.sql.classic.{Dataset => ClassicDataset, ExpressionUtils}
import org.apache.spark.sql.streaming.{OutputMode, TimeMode}
import org.apache.spark.sql.types._

/** What Python calls. One method per operator; a spec is JSON, so that the doorway stays narrow. */
object Kernel {
  /**
   * Runs a keyed operator over `df`.
   *
   * `df` has the user's columns and, under the names that the spec gives: `route` (int), `time` (bigint, ms), `partition` (int), `offset`
   * (bigint) and `eventTime` (timestamp, null where the row must not move the watermark). `observed` names the observation that counts the rows of
   * some routes (`counted`). The result has the columns of `df`
   * but `eventTime`, the stages' result columns (null off the result route), `route`, and `reason`. If the last stage is a window, its columns
   * have names that begin with `WindowPrefix`; `windowColumns` has its aggregates and conditions by name.
   */
  def keyed(df: DataFrame, specJson: String, windowColumns: java.util.Map[String, Column]): DataFrame = {
    val spec = new ObjectMapper().readTree(specJson)
    val eventTime = spec.get("eventTime").asText
    val route = spec.get("route").asText
    // Late rows: Spark drops them before they reach an operator that sees the watermarked column. Projected away below, the watermark
    // runs on and late rows come in; the stages decide what to do with them. (Held by the test `late rows reach the kernel`.)
    val columns = df.columns.filterNot(_ == eventTime)
    val schema = StructType(df.schema.filterNot(_.name == eventTime))
    val rows = df.select(columns.toIndexedSeq.map(plain): _*)
    val keyColumns = strings(spec.get("key"))
    val fused = new FusedSteps(
      rows, StructType(keyColumns.map(schema(_))), spec.get("stages").elements().asScala.toSeq, windowColumns, spec.get("time").asText)

    // A window over the whole stream has one key.
    val key = keyBytes(if (keyColumns.isEmpty) Seq(F.lit(0)) else keyColumns.map(plain))
    val ticks = F.array(Clock.keys(spec.get("statePartitions").asInt).map(F.lit(_)): _*)
    val position = keyBytes(Seq(F.col(spec.get("partition").asText), F.col(spec.get("offset").asText)))
    val incoming = df
      .select(
        // Rows that only pass through are spread over the partitions by their position; their key may be null.
        F.when(F.col(route) === Routes.Result, key)
          .when(F.col(route) === Routes.Control, F.get(ticks, F.col(spec.get("partition").asText)))
          .otherwise(position).as("key"),
        bytes(columns.toIndexedSeq.map(plain)).as("row"),
        F.col(eventTime))
      // After the row is packed: Spark copies what passes here.
      .withWatermark(eventTime, s"${spec.get("outOfOrderMs").asLong} milliseconds")
      .select("key", "row")
      .as[Incoming](IncomingRows)
    val layout = RowLayout(
      schema.length, schema.fieldIndex(route), schema.fieldIndex(spec.get("time").asText),
      schema.fieldIndex(spec.get("partition").asText), schema.fieldIndex(spec.get("offset").asText), schema.fieldIndex(spec.get("timestamp").asText))
    val realtime = spec.get("realtime").asBoolean
    val operator = new KeyedOperator(
      fused.stages, fused.timerSlots, layout, fused.resultSchema, realtime, Option.when(!spec.get("claims").asBoolean)(spec.get("outOfOrderMs").asLong))
    val outgoing = (if (realtime) incoming else incoming.mapPartitions(new Bundler(_))(IncomingRows))
      .groupBy("key").as[Array[Byte], Incoming](Encoders.BINARY, IncomingRows)
      .transformWithState(operator, TimeMode.EventTime(), OutputMode.Update())(OutgoingRows)
      .toDF()

    // Counted here, where a row is still small: Spark copies what passes an observation.
    observed(outgoing, spec)
      .select(F.col("route"), row(F.col("row"), schema).as("in"), row(F.col("result"), fused.resultSchema).as("out"), F.col("reason"))
      .select(
        columns.toIndexedSeq.filterNot(_ == route).map(c => F.col("in").getField(c).as(c)) ++
          // The results of a window have columns of their own, some of which are called as columns that came in.
          fused.resultSchema.fieldNames.toIndexedSeq.map(c => F.col("out").getField(c).as(if (fused.windowed) WindowPrefix + c else c)) ++
          Seq(F.col("route").as(route), F.col("reason").as(spec.get("reason").asText)): _*)
  }

  /** A column of just that name, whatever is in it: a dot is no path. */
  private[headrace] def plain(name: String): Column = F.col(quoteIdentifier(name))

  private def observed(outgoing: DataFrame, spec: JsonNode): DataFrame = if (spec.get("observed").isNull) outgoing else {
    val counts = spec.get("counted").properties().asScala.toSeq.map { c => F.count_if(F.col("route") === c.getValue.asInt).as(c.getKey) }
    outgoing.observe(spec.get("observed").asText, counts.head, counts.tail: _*)
  }

  // Made by reflection, and the same for all operators.
  private lazy val IncomingRows = Encoders.product[Incoming]
  private lazy val OutgoingRows = Encoders.product[Outgoing]

  /** Of the names under which the columns of a window leave. */
  val WindowPrefix = "__hr_w_"
  /** The latest record timestamp among the events of a window's result. */
  val Arrived = "arrived"

  private def bytes(columns: Seq[Column]): Column =
    ExpressionUtils.column(RowBytes(columns.map(ExpressionUtils.expression)))

  private def keyBytes(columns: Seq[Column]): Column =
    ExpressionUtils.column(KeyBytes(columns.map(ExpressionUtils.expression)))

  private def row(bytes: Column, schema: StructType): Column =
    ExpressionUtils.column(BytesRow(ExpressionUtils.expression(bytes), schema))

  private[headrace] def strings(node: JsonNode): Seq[String] = node.elements().asScala.map(_.asText).toSeq
}

/** The stages of one operator, from their specs; each sees the same input row and owns a slice of the result. */
private final class FusedSteps(
    rows: DataFrame, keySchema: StructType, specs: Seq[JsonNode], windowColumns: java.util.Map[String, Column], time: String) {
  private val schema = rows.schema
  private var fields = Vector.empty[StructField]

  val windowed: Boolean = specs.lastOption.exists(_.get("kind").asText == "window")

  val stages: Array[Stage] = specs.map { spec =>
    spec.get("kind").asText match {
      case "dedupe" =>
        new Dedupe(spec.get("name").asText, schema, ordinals(spec.get("columns")), spec.get("withinMs").asLong): Stage
      case "filter" => new Filter(schema.fieldIndex(spec.get("column").asText)): Stage
      case "rolling" => rolling(spec): Stage
      case "window" => window(spec): Stage
    }
  }.toArray

  /** Of each stage, the number that its timers carry: by name, for steps may change places, and a `where` between them come and go, while timers wait. */
  val timerSlots: Array[Int] = {
    val names = specs.flatMap(s => Option(s.get("name")).map(_.asText)).sorted
    specs.map(s => Option(s.get("name")).fold(-1)(n => names.indexOf(n.asText))).toArray
  }

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

  private def window(spec: JsonNode): Stage = {
    val names = Kernel.strings(spec.get("aggregates"))
    val aggregates = AggregateColumns.of(rows, names.map(n => windowColumns.get(s"aggregate:$n").as(n)))
    val bounds = Seq("window_start", "window_end").map(StructField(_, TimestampType))
    val seen = StructType(keySchema.fields.toSeq ++ bounds ++ aggregates.schema)
    fields = (seen.fields.toVector ++ Seq(
      StructField("window_time", TimestampType), StructField("pane_index", LongType), StructField("pane_timing", StringType),
      StructField("is_last", BooleanType), StructField("row_kind", StringType), StructField(Kernel.Arrived, LongType)))
      .map(_.copy(nullable = true))
    def step(using: AggregateColumns, assigner: WindowAssigner): WindowStep = WindowStep(
      spec.get("name").asText,
      assigner,
      Trigger.of(spec.get("trigger")),
      using,
      conditions(spec.get("conditions").asInt, StructType(seen.map(_.copy(nullable = true)))),
      spec.get("panes").asText,
      spec.get("latenessMs").asLong,
      spec.get("resultTime").asText,
      spec.get("resultTimePlusMs").asLong,
      keySchema,
      resultSchema)
    val windows = spec.get("windows")
    if (windows.get("kind").asText == "sliding") {
      // Events are kept for as long as a window may need them: only the columns that the aggregates use.
      // By name: their order in the schema may change while there is state.
      val used = schema.fieldNames.toIndexedSeq.filter(aggregates.references).sorted
      val named = names.map(n => windowColumns.get(s"aggregate:$n").as(n))
      val stored = if (used.isEmpty) IndexedSeq(time) else used
      val reduced = AggregateColumns.of(rows.select(stored.map(Kernel.plain): _*), named)
      new Sliding(step(reduced, Everything), windows.get("sizeMs").asLong, schema, stored.map(schema.fieldIndex).toArray)
    } else {
      val whole = step(aggregates, WindowAssigner.of(windows))
      (whole.assigner, whole.trigger) match {
        case (hops: Aligned, Sharable(restates)) if hops.slide < hops.size && whole.panes == PaneMode.Accumulating && whole.resultTime == "end" =>
          new SharedHops(whole, hops, restates)
        case _ => new Windows(whole)
      }
    }
  }

  /** Triggers with a result at the end and, if at all, one for each batch of late events: whether they have those. */
  private object Sharable {
    def unapply(trigger: Trigger): Option[Boolean] = trigger match {
      case Repeat(t) => t match { case AfterWatermark(None, None) => Some(true); case other => unapply(other) }
      case AfterWatermark(None, None) => Some(false)
      case AfterWatermark(None, Some(Repeat(AfterCount(1)))) => Some(true)
      case _ => None
    }
  }

  /** Resolved by Spark against a table of the same columns, then bound to their positions. */
  private def conditions(count: Int, columns: StructType): Seq[Expression] = if (count == 0) Nil else {
    val empty = rows.sparkSession.createDataFrame(java.util.List.of[Row](), columns)
    val wanted = (0 until count).map(i => windowColumns.get(s"condition:$i").cast("boolean").as(s"c$i"))
    val plan = ReplaceExpressions(empty.select(wanted: _*).asInstanceOf[ClassicDataset[_]].queryExecution.analyzed)
    val Project(resolved, child) = plan: @unchecked
    resolved.map(r => BindReferences.bindReference(r: Expression, AttributeSeq.fromNormalOutput(child.output)))
      .map { case Alias(value, _) => value; case other => other }
  }

  private def ordinals(columns: JsonNode): Array[Int] = Kernel.strings(columns).map(schema.fieldIndex).toArray
}
