package org.apache.spark.sql.headrace

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types._

/** JSON under a contract: JSON describes itself, so of the writer's schema only its type matters; the columns say what is due. */
private[headrace] final class JsonLanguage(columns: StructType) extends ContractLanguage {
  override def reader(written: RegistrySchema): PayloadReader = {
    val rows = new JsonRowReader(columns)
    payload => rows.parse(payload, WireFormat.Header)
  }
}

/** Rows as JSON objects; a property that the contract requires must be there. */
private[headrace] final class JsonPayloads(row: StructType, contract: ContractSchema) extends PayloadWriter {
  private val schema: JsonNode = new ObjectMapper().readTree(contract.text)
  if (!JsonEncode.supports(row)) throw new IllegalArgumentException(s"${row.simpleString} can't be written as JSON")
  private val properties = schema.path("properties").fieldNames().asScala.toSet
  private val required = schema.path("required").elements().asScala.map(_.asText).toSeq
  if (schema.has("properties") && schema.path("additionalProperties").isBoolean && !schema.path("additionalProperties").asBoolean) {
    row.fieldNames.find(!properties(_)).foreach(name => throw new IllegalArgumentException(s"column `$name` is no property of the contract"))
  }
  required.find(row.getFieldIndex(_).isEmpty).foreach(name =>
    throw new IllegalArgumentException(s"the contract requires property `$name` and the stream has no such column"))
  private val due = required.map(row.fieldIndex).toArray
  private val writer = new JsonRowWriter(row)

  override def write(values: InternalRow, out: ByteWriter): Unit = {
    due.foreach(i => if (values.isNullAt(i)) throw new Misfit(s"field `${row(i).name}` is null, but the contract requires it"))
    out.putBytes(writer.write(values))
  }
}
