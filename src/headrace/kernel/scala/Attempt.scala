package org.apache.spark.sql.headrace

import org.apache.spark.TaskKilledException
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{ConditionalExpression, Expression, GenericInternalRow}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode, FalseLiteral}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.catalyst.trees.UnaryLike
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * What an expression of the user gives, or why it fails on this row: a struct of `value` and `failure`. Where it fails the row becomes a dead letter.
 * Without this it would end the task, then the query, and every run after it, for the row comes again.
 *
 * To Spark it is a conditional expression of which nothing is always evaluated: what it has in common with others must not be computed outside of
 * it, where nobody catches what it throws.
 */
case class Attempt(child: Expression, step: String) extends ConditionalExpression with UnaryLike[Expression] {
  override def nullable: Boolean = false
  /** So that Spark pushes no filter below it: the filter would have to compute the attempt once more, and those that it goes by, each twice. */
  override def expensive: Boolean = true
  override lazy val dataType: StructType = StructType(Seq(StructField("value", child.dataType), StructField("failure", StringType)))

  override def alwaysEvaluatedInputs: Seq[Expression] = Nil
  override def withNewAlwaysEvaluatedInputs(inputs: Seq[Expression]): Attempt = this
  override def branchGroups: Seq[Seq[Expression]] = Nil

  def result(value: Any): InternalRow = new GenericInternalRow(Array[Any](value, null))

  def failure(problem: Exception): InternalRow = problem match {
    // The task is to end: that is not the row's fault.
    case _: InterruptedException | _: TaskKilledException => throw problem
    case _ => new GenericInternalRow(Array[Any](null, UTF8String.fromString(Reasons.stepFailed(step, problem))))
  }

  override def eval(input: InternalRow): Any = try result(child.eval(input)) catch { case problem: Exception => failure(problem) }

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val self = ctx.addReferenceObj("attempt", this)
    val made = child.genCode(ctx)
    val boxed = ctx.freshName("boxed")
    val problem = ctx.freshName("problem")
    ev.copy(
      isNull = FalseLiteral,
      code = code"""
        |${classOf[InternalRow].getName} ${ev.value};
        |try {
        |  ${made.code}
        |  Object $boxed = null;
        |  if (!${made.isNull}) $boxed = ${made.value};
        |  ${ev.value} = $self.result($boxed);
        |} catch (Exception $problem) {
        |  ${ev.value} = $self.failure($problem);
        |}""".stripMargin)
  }

  override protected def withNewChildInternal(newChild: Expression): Attempt = copy(child = newChild)
}
