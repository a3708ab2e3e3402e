package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, GenericInternalRow, UnaryExpression}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** A struct as a payload in Confluent's wire format: `value`, or the `reason` for which the row does not fit its contract. */
case class ContractEncode(child: Expression, contract: ContractSchema, id: Int) extends UnaryExpression {
  override def dataType: DataType = ContractEncode.result
  @transient private lazy val writer = PayloadWriter.of(contract, child.dataType.asInstanceOf[StructType])
  @transient private lazy val out = new ByteWriter(512)

  def encode(row: InternalRow): InternalRow =
    try {
      out.clear()
      WireFormat.writeHeader(id, out)
      writer.write(row, out)
      new GenericInternalRow(Array[Any](out.toBytes, null))
    } catch {
      case misfit: Misfit => new GenericInternalRow(Array[Any](null, UTF8String.fromString(misfit.getMessage)))
    }

  override protected def nullSafeEval(value: Any): Any = encode(value.asInstanceOf[InternalRow])

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val self = ctx.addReferenceObj("contractEncode", this)
    defineCodeGen(ctx, ev, row => s"$self.encode($row)")
  }

  override protected def withNewChildInternal(newChild: Expression): ContractEncode = copy(child = newChild)
}

object ContractEncode {
  val result: StructType = new StructType().add("value", BinaryType).add("reason", StringType)
}

/** Writes what comes after the schema's id. */
private[headrace] trait PayloadWriter {
  def write(row: InternalRow, out: ByteWriter): Unit
}

private[headrace] object PayloadWriter {
  /** An IllegalArgumentException says why rows of that type can never fit. */
  def of(contract: ContractSchema, row: StructType): PayloadWriter = contract.kind match {
    case "AVRO" =>
      val encode = new AvroEncode(row, AvroLanguage.parse(contract.text, contract.references))
      (values, out) => encode.write(values, out)
    case "PROTOBUF" => new ProtoEncode(row, ProtoLayout.parse(contract.text))
    case "JSON" => new JsonPayloads(row, contract)
    case other => throw new IllegalArgumentException(s"no contracts of type $other")
  }
}
