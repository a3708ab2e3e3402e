package org.apache.spark.sql.headrace

import java.util.HashMap
import java.util.concurrent.ConcurrentHashMap

import scala.util.control.NonFatal

import org.apache.avro.Schema

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, UnaryExpression}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** The schema that a pipeline reads or writes with. `message` is the Protobuf message by its full name, "" for the first of the file. */
final case class ContractSchema(kind: String, text: String, references: Seq[(String, String)], message: String) {
  override def toString: String = s"$kind contract"
}

/**
 * Payloads in Confluent's wire format as a struct of the contract's columns plus one more, the reason: null, or why the payload is no such
 * row (then all other fields are null). Each payload is decoded with its own writer's schema and resolved to the contract's; schemas are
 * fetched on first sight. Never throws on data; a registry that can't be asked stops the query (see [[ContractRegistry]]).
 */
case class ContractDecode(child: Expression, contract: ContractSchema, columns: StructType, reason: String, registry: RegistryAccess)
  extends UnaryExpression {
  override def dataType: DataType = columns.add(reason, StringType)
  /** As with JSON. */
  override def expensive: Boolean = true
  @transient private lazy val decoder = new ContractDecoder(contract, columns, ContractRegistry.of(registry))

  def decode(bytes: Array[Byte]): InternalRow = decoder.read(bytes)

  override protected def nullSafeEval(value: Any): Any = decode(value.asInstanceOf[Array[Byte]])

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val self = ctx.addReferenceObj("contractDecode", this)
    defineCodeGen(ctx, ev, bytes => s"$self.decode($bytes)")
  }

  override protected def withNewChildInternal(newChild: Expression): ContractDecode = copy(child = newChild)
}

/** Reads what comes after the schema's id, into a row that has a slot more than the contract has columns. */
private[headrace] trait PayloadReader {
  def read(payload: Array[Byte]): InternalRow
}

private[headrace] final class ContractDecoder(contract: ContractSchema, columns: StructType, registry: ContractRegistry) {
  private val slots = columns.length + 1
  private val language = ContractLanguage.of(contract, columns)
  private val readers = new HashMap[Integer, PayloadReader]
  private var lastId = -1
  private var last: PayloadReader = _

  def read(bytes: Array[Byte]): InternalRow =
    try {
      val id = WireFormat.id(bytes)
      if (id != lastId || last == null) {
        last = readers.get(id)
        if (last == null) last = open(id)
        lastId = id
      }
      last.read(bytes)
    } catch {
      case misfit: Misfit => failed(misfit.getMessage)
    }

  /** A schema that is known is kept; one that the registry does not have may be there later. */
  private def open(id: Int): PayloadReader = registry.schema(id) match {
    case None => throw new Misfit(s"schema id $id is not in the registry")
    case Some(written) =>
      val reader =
        if (written.kind != contract.kind) refused(s"schema id $id is of type ${written.kind}, the contract is ${contract.kind}")
        else try language.reader(written) catch {
          case misfit: Misfit => refused(s"schema id $id: ${misfit.getMessage}")
          case NonFatal(problem) => refused(s"schema id $id can't be used: ${String.valueOf(problem.getMessage).linesIterator.nextOption().getOrElse("")}")
        }
      readers.put(id, reader)
      reader
  }

  private def refused(reason: String): PayloadReader = _ => throw new Misfit(reason)

  private def failed(reason: String): InternalRow = {
    last = null
    val row = new DecodedRow(slots)
    row.update(slots - 1, UTF8String.fromString(reason))
    row
  }
}

/**
 * A contract in one of the languages: its schema is parsed once per process, and so is what is made of it and each writer's schema.
 * Readers belong to one task.
 */
private[headrace] trait ContractLanguage {
  def reader(written: RegistrySchema): PayloadReader
}

private[headrace] object ContractLanguage {
  // A micro-batch has tasks of its own, many times a second: they must not parse schemas anew.
  private val made = new ConcurrentHashMap[(ContractSchema, StructType), ContractLanguage]

  def of(contract: ContractSchema, columns: StructType): ContractLanguage =
    made.computeIfAbsent((contract, columns), _ => make(contract, columns, columns.length + 1))

  private def make(contract: ContractSchema, columns: StructType, slots: Int): ContractLanguage = contract.kind match {
    case "AVRO" => new AvroLanguage(contract, columns, slots)
    case "PROTOBUF" => new ProtoLanguage(contract, slots)
    case "JSON" => new JsonLanguage(columns)
    case other => throw new IllegalArgumentException(s"no contracts of type $other")
  }
}

private[headrace] final class AvroLanguage(contract: ContractSchema, columns: StructType, slots: Int) extends ContractLanguage {
  private val own = AvroLanguage.parse(contract.text, contract.references)
  private val resolutions = new ConcurrentHashMap[RegistrySchema, AvroResolution]

  override def reader(written: RegistrySchema): PayloadReader = {
    val resolution = resolutions.computeIfAbsent(written, _ =>
      new AvroResolution(AvroLanguage.parse(written.text, written.references), own, columns, slots))
    val cursor = new ByteCursor
    payload => resolution.read(cursor.over(payload, WireFormat.Header))
  }
}

private[headrace] object AvroLanguage {
  /** Producers in the field have names and defaults that the specification does not allow; they are taken as they are. */
  def parse(text: String, references: Seq[(String, String)]): Schema = {
    val parser = new Schema.Parser(org.apache.avro.NameValidator.NO_VALIDATION).setValidateDefaults(false)
    references.foreach { case (_, reference) => parser.parse(reference) }
    parser.parse(text)
  }
}
