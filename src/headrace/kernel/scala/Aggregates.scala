package org.apache.spark.sql.headrace

import scala.util.control.NonFatal

import org.apache.spark.sql.{Column, DataFrame}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions
import org.apache.spark.sql.catalyst.plans.logical.Aggregate
import org.apache.spark.sql.classic.{Dataset => ClassicDataset}
import org.apache.spark.sql.types.{DataType, LongType, StructField, StructType}

/**
 * Spark's own aggregate functions, to be evaluated inside an operator: as resolved by Spark's analyzer, from any columns that `df.agg`
 * would take. `input` are the attributes of the rows that will come.
 */
final class AggregateColumns private (val input: Seq[Attribute], results: Seq[NamedExpression]) extends Serializable {
  val schema: StructType = StructType(results.map(r => StructField(r.name, r.dataType, nullable = true)))

  /** The names of the input columns that the functions use. */
  val references: Set[String] = results.flatMap(_.references.map(_.name)).toSet

  /** One per task: evaluators keep buffers and generated code. */
  def evaluator(): AggregateEvaluator = new AggregateEvaluator(input, results)
}

object AggregateColumns {
  /** From columns over `df`; each has a name. */
  def of(df: DataFrame, columns: Seq[Column]): AggregateColumns = {
    val plan = df.groupBy().agg(columns.head, columns.tail: _*).asInstanceOf[ClassicDataset[_]].queryExecution.analyzed
    val Aggregate(_, resolved, child, _) = ReplaceExpressions(plan): @unchecked
    new AggregateColumns(child.output, resolved.map(r => withoutDistinct(r).asInstanceOf[NamedExpression]))
  }

  /** Spark plans DISTINCT as a second aggregation; here the distinct values are part of the buffer. */
  private def withoutDistinct(expression: Expression): Expression = expression.transform {
    case AggregateExpression(count: Count, mode, true, filter, id) if count.children.length == 1 =>
      val set = AggregateExpression(CollectSet(count.children.head), mode, isDistinct = false, filter, id)
      Cast(Size(set, legacySizeOfNull = false), LongType)
    case AggregateExpression(f, mode, true, filter, id) if f.prettyName == "collect_set" || f.prettyName == "max" || f.prettyName == "min" =>
      AggregateExpression(f, mode, isDistinct = false, filter, id)
    case AggregateExpression(f, _, true, _, _) =>
      throw new UnsupportedOperationException(
        s"${f.prettyName}(DISTINCT ...) is not supported in a window; count(DISTINCT one column) is, and collect_set(...)")
  }
}

/**
 * Keeps aggregation buffers: makes, updates, merges, stores and evaluates them. A live buffer is a mutable row, in which some functions
 * keep objects; a stored one is the bytes of an UnsafeRow.
 */
final class AggregateEvaluator(input: Seq[Attribute], results: Seq[NamedExpression]) {
  private val expressions: Seq[AggregateExpression] =
    results.flatMap(_.collect { case a: AggregateExpression => a }).distinctBy(_.resultId)
  private val functions: Array[AggregateFunction] = {
    var offset = 0
    expressions.map { e =>
      val function = e.aggregateFunction match {
        case i: ImperativeAggregate =>
          val placed = i.withNewMutableAggBufferOffset(offset).withNewInputAggBufferOffset(offset)
          BindReferences.bindReference(placed.asInstanceOf[AggregateFunction], AttributeSeq.fromNormalOutput(input))
        case d => d
      }
      offset += function.aggBufferAttributes.length
      function
    }.toArray
  }
  private val bufferAttributes: Seq[AttributeReference] = functions.toIndexedSeq.flatMap(_.aggBufferAttributes)
  private val types: Array[DataType] = bufferAttributes.map(_.dataType).toArray
  private val imperative: Array[(ImperativeAggregate, BasePredicate)] = functions.zip(expressions).collect {
    case (i: ImperativeAggregate, e) => (i, e.filter.map(f => Predicate.create(f, input)).orNull)
  }
  private val typed: Array[TypedImperativeAggregate[_]] =
    imperative.map(_._1).collect { case t: TypedImperativeAggregate[_] => t }
  private val joined = new JoinedRow

  private val initial = mutable(functions.toIndexedSeq.flatMap {
    case d: DeclarativeAggregate => d.initialValues
    case i => i.aggBufferAttributes.map(_ => NoOp)
  }, Nil)
  private val updating = mutable(functions.toIndexedSeq.zip(expressions).flatMap {
    case (d: DeclarativeAggregate, e) => e.filter match {
      case None => d.updateExpressions
      case Some(filter) => d.updateExpressions.zip(d.aggBufferAttributes).map { case (u, old) => If(filter, u, old) }
    }
    case (i, _) => i.aggBufferAttributes.map(_ => NoOp)
  }, bufferAttributes ++ input)
  private val merging = mutable(functions.toIndexedSeq.flatMap {
    case d: DeclarativeAggregate => d.mergeExpressions
    case i => i.aggBufferAttributes.map(_ => NoOp)
  }, bufferAttributes ++ functions.toIndexedSeq.flatMap(_.inputAggBufferAttributes))
  private val toUnsafe = UnsafeProjection.create(types)
  private val stored = new UnsafeRow(types.length)
  private lazy val spare = empty()

  /** Of each function, its value: declarative ones as expressions over the buffer, the others from themselves. */
  private val values = new GenericInternalRow(functions.length)
  private val valueOf: Array[InternalRow => Any] = functions.map {
    case d: DeclarativeAggregate =>
      val bound = BindReferences.bindReference(d.evaluateExpression, AttributeSeq.fromNormalOutput(bufferAttributes))
      (buffer: InternalRow) => bound.eval(buffer)
    case i: ImperativeAggregate => (buffer: InternalRow) => i.eval(buffer)
  }
  private val finish: Array[Expression] = {
    val attributes = expressions.map(_.resultAttribute)
    results.map { r =>
      val plain = r.transform { case a: AggregateExpression => a.resultAttribute }
      BindReferences.bindReference(plain match { case Alias(child, _) => child; case other => other }, AttributeSeq.fromNormalOutput(attributes))
    }.toArray
  }

  def width: Int = finish.length

  private def mutable(exprs: Seq[Expression], over: Seq[Attribute]): MutableProjection = MutableProjection.create(exprs, over)

  /** A buffer of no rows. */
  def empty(): InternalRow = {
    val buffer = new SpecificInternalRow(types.toIndexedSeq)
    initial.target(buffer)(InternalRow.empty)
    var i = 0
    while (i < imperative.length) { imperative(i)._1.initialize(buffer); i += 1 }
    buffer
  }

  /** The expressions in an aggregate are the user's, and may fail on a row in any way: a cast, a division, an index. */
  def update(buffer: InternalRow, row: InternalRow): Unit =
    try add(buffer, row) catch { case NonFatal(problem) => throw new RowFailure(problem) }

  /**
   * Fails on a row on which one of the functions does that are updated one by one: the others would have counted the row by then. Those that are
   * updated by expressions need no such care, as all of these are evaluated before the buffer is changed.
   */
  def check(row: InternalRow): Unit = if (imperative.length > 0) {
    try { imperative.foreach(_._1.initialize(spare)); addOneByOne(spare, row) }
    catch { case NonFatal(problem) => throw new RowFailure(problem) }
  }

  /** Fails where the functions that are updated by expressions would, on a row and what the buffer holds. Changes nothing. */
  def check(buffer: InternalRow, row: InternalRow): Unit =
    try updating.target(spare)(joined(buffer, row)) catch { case NonFatal(problem) => throw new RowFailure(problem) }

  private def add(buffer: InternalRow, row: InternalRow): Unit = {
    updating.target(buffer)(joined(buffer, row))
    addOneByOne(buffer, row)
  }

  private def addOneByOne(buffer: InternalRow, row: InternalRow): Unit = {
    var i = 0
    while (i < imperative.length) {
      val (function, filter) = imperative(i)
      if (filter == null || filter.eval(row)) function.update(buffer, row)
      i += 1
    }
  }

  /** Adds a stored buffer to a live one. It may fail: two sums need not fit together. */
  def merge(buffer: InternalRow, bytes: Array[Byte]): Unit =
    try join(buffer, bytes) catch { case NonFatal(problem) => throw new RowFailure(problem) }

  private def join(buffer: InternalRow, bytes: Array[Byte]): Unit = {
    stored.pointTo(bytes, bytes.length)
    merging.target(buffer)(joined(buffer, stored))
    var i = 0
    while (i < imperative.length) { imperative(i)._1.merge(buffer, stored); i += 1 }
  }

  def load(bytes: Array[Byte]): InternalRow = { val buffer = empty(); merge(buffer, bytes); buffer }

  /** The buffer as bytes. It is not to be used afterwards: functions with objects have put their bytes in their place. */
  def store(buffer: InternalRow): Array[Byte] = {
    var i = 0
    while (i < typed.length) { typed(i).serializeAggregateBufferInPlace(buffer); i += 1 }
    toUnsafe(buffer).copy().getBytes
  }

  /** The results, into `out` from `at` on. */
  def results(buffer: InternalRow, out: GenericInternalRow, at: Int): Unit =
    try evaluate(buffer, out, at) catch { case NonFatal(problem) => throw new RowFailure(problem) }

  private def evaluate(buffer: InternalRow, out: GenericInternalRow, at: Int): Unit = {
    var i = 0
    while (i < valueOf.length) { values.update(i, valueOf(i)(buffer)); i += 1 }
    i = 0
    while (i < finish.length) { out.update(at + i, finish(i).eval(values)); i += 1 }
  }
}
