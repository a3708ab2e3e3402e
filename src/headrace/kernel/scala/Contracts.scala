package org.apache.spark.sql.headrace

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import org.apache.spark.sql.{Column, DataFrame}
import org.apache.spark.sql.classic.ExpressionUtils
import org.apache.spark.sql.types.StructType

/** Contracts as Python asks for them; specs are JSON. */
object Contracts {
  /** How to reach a registry: `urls`, and where there are any `authorization`, `ca`, `certificate`, `key`. */
  def registry(specJson: String): RegistryAccess = {
    val spec = new ObjectMapper().readTree(specJson)
    def text(name: String): Option[String] = Option(spec.get(name)).filterNot(_.isNull).map(_.asText)
    val files = TlsFiles(text("ca"), text("certificate"), text("key"))
    new RegistryAccess(
      Kernel.strings(spec.get("urls")), text("authorization"), Some(files).filter(_ != TlsFiles(None, None, None)), spec.get("patienceMs").asLong)
  }

  /** Payloads as a struct of the columns and a string field `reason` (see [[ContractDecode]]). */
  def decode(value: Column, contractJson: String, columnsDdl: String, reason: String, registry: RegistryAccess): Column = {
    val columns = StructType(StructType.fromDDL(columnsDdl).map(_.copy(nullable = true))).asNullable
    val contract = schema(contractJson)
    ContractLanguage.of(contract, columns) // a schema that can't be read is found here, not in a task
    ExpressionUtils.column(ContractDecode(ExpressionUtils.expression(value), contract, columns, reason, registry))
  }

  /** A struct as a struct of its payload and the reason for which it has none (see [[ContractEncode]]). */
  def encode(df: DataFrame, struct: Column, contractJson: String, id: Int): Column = {
    val contract = schema(contractJson)
    PayloadWriter.of(contract, df.select(struct).schema.head.dataType.asInstanceOf[StructType]) // what can't fit is found here
    ExpressionUtils.column(ContractEncode(ExpressionUtils.expression(struct), contract, id))
  }

  private def schema(json: String): ContractSchema = {
    val spec = new ObjectMapper().readTree(json)
    val references = spec.get("references").elements().asScala.map((r: JsonNode) => (r.get(0).asText, r.get(1).asText)).toSeq
    ContractSchema(spec.get("kind").asText, spec.get("text").asText, references, spec.path("message").asText(""))
  }
}
