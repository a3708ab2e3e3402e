package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.TypeCheckResult
import org.apache.spark.sql.catalyst.analysis.TypeCheckResult.{TypeCheckFailure, TypeCheckSuccess}
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * Texts and whole numbers as the bytes of a path, with a slash between them. Nulls are left out; of nothing but nulls it is null. Every record has such
 * an id, and `concat_ws` makes a string of each part first.
 */
case class Place(children: Seq[Expression]) extends Expression {
  override def dataType: DataType = BinaryType
  override def nullable: Boolean = children.forall(_.nullable)

  override def checkInputDataTypes(): TypeCheckResult =
    children.map(_.dataType).find { case StringType | IntegerType | LongType => false; case _ => true } match {
      case None => TypeCheckSuccess
      case Some(other) => TypeCheckFailure(s"a part of a place is a ${other.simpleString}")
    }

  @transient private lazy val out = new ByteWriter
  @transient private var first = true

  def begin(): Unit = { out.clear(); first = true }
  def put(part: UTF8String): Unit = { separate(); out.putText(part) }
  def put(part: Long): Unit = { separate(); out.putDigits(part) }
  def put(part: Int): Unit = put(part.toLong)
  def end(): Array[Byte] = if (first) null else out.toBytes

  private def separate(): Unit = if (first) first = false else out.putByte('/')

  override def eval(input: InternalRow): Any = {
    begin()
    children.foreach(_.eval(input) match {
      case null =>
      case text: UTF8String => put(text)
      case number: Long => put(number)
      case number: Int => put(number)
    })
    end()
  }

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val self = ctx.addReferenceObj("place", this)
    val parts = children.map(_.genCode(ctx))
    val put = parts.map { part => code"${part.code}\nif (!${part.isNull}) $self.put(${part.value});" }
    val all = put.foldLeft(code"$self.begin();")((code, part) => code"$code\n$part")
    ev.copy(code = code"$all\nbyte[] ${ev.value} = $self.end();\nboolean ${ev.isNull} = ${ev.value} == null;")
  }

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): Place = copy(children = newChildren)
}
