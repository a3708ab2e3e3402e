package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{BoundReference, Expression, UnaryExpression, UnsafeProjection, UnsafeRow, XXH64}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode, FalseLiteral, GenerateUnsafeProjection}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers
import org.apache.spark.sql.types.{BinaryType, DataType, StructType}
import org.apache.spark.unsafe.Platform

/** Some columns as one binary value, made from their UnsafeRow; generated code writes that row directly, without boxing. */
trait FromUnsafeRow extends Expression {
  override def dataType: DataType = BinaryType
  override def nullable: Boolean = false
  @transient private lazy val project = UnsafeProjection.create(children)

  /** The row lives in a buffer that is used again for the next one. */
  def bytes(row: UnsafeRow): Array[Byte]

  override def eval(input: InternalRow): Any = bytes(project(input))

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val self = ctx.addReferenceObj("fromUnsafeRow", this, classOf[FromUnsafeRow].getName)
    val row = GenerateUnsafeProjection.createCode(ctx, children)
    ev.copy(code = code"${row.code}\nbyte[] ${ev.value} = $self.bytes(${row.value});", isNull = FalseLiteral)
  }
}

/**
 * A row as a bundle of one, so that rows of any schema cross `transformWithState` as one binary column: no encoder per schema, no
 * boxing, and the operator reads only the columns it needs.
 */
case class RowBytes(children: Seq[Expression]) extends FromUnsafeRow {
  override def bytes(row: UnsafeRow): Array[Byte] = Bundles.of(row)
  override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): RowBytes = copy(children = newChildren)
}

/** The bytes of an UnsafeRow as a row. */
case class BytesRow(child: Expression, schema: StructType) extends UnaryExpression {
  override def dataType: DataType = schema

  def row(bytes: Array[Byte]): InternalRow = {
    val row = new UnsafeRow(schema.length)
    row.pointTo(bytes, bytes.length)
    row
  }

  override protected def nullSafeEval(value: Any): Any = row(value.asInstanceOf[Array[Byte]])

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val self = ctx.addReferenceObj("bytesRow", this)
    defineCodeGen(ctx, ev, bytes => s"$self.row($bytes)")
  }

  override protected def withNewChildInternal(newChild: Expression): BytesRow = copy(child = newChild)
}

/**
 * The columns of a grouping key: a hash, then their UnsafeRow. Spark sorts the rows of a batch by key, and compares binary values
 * by their first eight bytes where these differ; those of an UnsafeRow hardly ever do, those of the hash do.
 */
case class KeyBytes(children: Seq[Expression]) extends FromUnsafeRow {
  /** Null if there is nothing to do. */
  @transient private lazy val normalized = KeyBytes.normalizing(children.map(_.dataType))

  override def bytes(plain: UnsafeRow): Array[Byte] = {
    val row = if (normalized == null) plain else normalized(plain)
    val size = row.getSizeInBytes
    val out = new Array[Byte](KeyBytes.HashBytes + size)
    val hash = XXH64.hashUnsafeBytes(row.getBaseObject, row.getBaseOffset, size, 42L)
    Platform.putLong(out, Platform.BYTE_ARRAY_OFFSET, hash)
    row.writeToMemory(out, Platform.BYTE_ARRAY_OFFSET + KeyBytes.HashBytes)
    out
  }
  override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): KeyBytes = copy(children = newChildren)
}

object KeyBytes {
  /** The hash comes first. */
  val HashBytes = 8

  /** Gives floating-point numbers that are equal the same bytes, as Spark does when it groups: both zeros, and all that is no number. */
  private def normalizing(types: Seq[DataType]): UnsafeProjection =
    if (!types.exists(NormalizeFloatingNumbers.needNormalize)) null
    else UnsafeProjection.create(types.zipWithIndex.map { case (dataType, i) =>
      NormalizeFloatingNumbers.normalize(BoundReference(i, dataType, nullable = true))
    })
}
