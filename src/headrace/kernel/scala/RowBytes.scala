package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, UnaryExpression, UnsafeProjection, UnsafeRow, XXH64}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.types.{BinaryType, DataType, StructType}
import org.apache.spark.unsafe.Platform

/**
 * A struct as the bytes of its UnsafeRow, so that rows of any schema cross `transformWithState` as one binary column:
 * no encoder per schema, no boxing, and the operator reads only the columns it needs.
 */
case class RowBytes(child: Expression) extends UnaryExpression {
  override def dataType: DataType = BinaryType
  @transient private lazy val toUnsafe = UnsafeProjection.create(child.dataType.asInstanceOf[StructType])

  def bytes(row: InternalRow): Array[Byte] = row match {
    case unsafe: UnsafeRow => unsafe.getBytes
    case other => toUnsafe(other).getBytes
  }

  override protected def nullSafeEval(value: Any): Any = bytes(value.asInstanceOf[InternalRow])

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val self = ctx.addReferenceObj("rowBytes", this)
    defineCodeGen(ctx, ev, row => s"$self.bytes($row)")
  }

  override protected def withNewChildInternal(newChild: Expression): RowBytes = copy(child = newChild)
}

/** The inverse of [[RowBytes]]. */
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
 * A struct as the bytes of a grouping key: a hash, then its UnsafeRow. Spark sorts the rows of a batch by key, and compares binary values
 * by their first eight bytes where these differ; those of an UnsafeRow hardly ever do, those of the hash do.
 */
case class KeyBytes(child: Expression) extends UnaryExpression {
  override def dataType: DataType = BinaryType
  @transient private lazy val toUnsafe = UnsafeProjection.create(child.dataType.asInstanceOf[StructType])

  def bytes(row: InternalRow): Array[Byte] = {
    val unsafe = row match {
      case already: UnsafeRow => already
      case other => toUnsafe(other)
    }
    val size = unsafe.getSizeInBytes
    val out = new Array[Byte](KeyBytes.HashBytes + size)
    val hash = XXH64.hashUnsafeBytes(unsafe.getBaseObject, unsafe.getBaseOffset, size, 42L)
    Platform.putLong(out, Platform.BYTE_ARRAY_OFFSET, hash)
    unsafe.writeToMemory(out, Platform.BYTE_ARRAY_OFFSET + KeyBytes.HashBytes)
    out
  }

  override protected def nullSafeEval(value: Any): Any = bytes(value.asInstanceOf[InternalRow])

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val self = ctx.addReferenceObj("keyBytes", this)
    defineCodeGen(ctx, ev, row => s"$self.bytes($row)")
  }

  override protected def withNewChildInternal(newChild: Expression): KeyBytes = copy(child = newChild)
}

object KeyBytes {
  /** The hash comes first. */
  val HashBytes = 8
}
