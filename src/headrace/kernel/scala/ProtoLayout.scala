package org.apache.spark.sql.headrace

import java.util.Base64

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Try

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.sparkproject.spark_core.protobuf.DescriptorProtos.{DescriptorProto, FileDescriptorProto}

/** What the bytes of a message mean, as Python has read it from the contract's text. */
private[headrace] final case class ProtoMessage(name: String, path: Seq[Int], fields: Array[ProtoField])

/** `presence`: absent is null; otherwise absent is the default of the type. */
private[headrace] final case class ProtoField(name: String, number: Int, required: Boolean, presence: Boolean, of: ProtoType)

private[headrace] sealed trait ProtoType
private[headrace] final case class ProtoScalar(kind: String) extends ProtoType
private[headrace] final case class ProtoEnum(name: String, values: Map[Int, String]) extends ProtoType
private[headrace] final case class ProtoStruct(fields: Array[ProtoField]) extends ProtoType
private[headrace] final case class ProtoArray(element: ProtoType, packed: Boolean) extends ProtoType
private[headrace] final case class ProtoMap(key: ProtoType, value: ProtoType) extends ProtoType
/** A message with the value in its field 1, as google.protobuf.StringValue. */
private[headrace] final case class ProtoWrapper(value: ProtoType) extends ProtoType
private[headrace] case object ProtoTimestamp extends ProtoType

private[headrace] object ProtoLayout {
  def parse(json: String): ProtoMessage = {
    val spec = new ObjectMapper().readTree(json)
    ProtoMessage(spec.get("message").asText, spec.get("path").elements().asScala.map(_.asInt).toSeq, fields(spec.get("fields")))
  }

  private def fields(list: JsonNode): Array[ProtoField] = list.elements().asScala.map { f =>
    ProtoField(f.get("name").asText, f.get("number").asInt, f.get("required").asBoolean, f.get("presence").asBoolean, typeOf(f.get("type")))
  }.toArray

  private def typeOf(spec: JsonNode): ProtoType = spec.get("kind").asText match {
    case "message" => ProtoStruct(fields(spec.get("fields")))
    case "array" => ProtoArray(typeOf(spec.get("element")), spec.get("packed").asBoolean)
    case "map" => ProtoMap(typeOf(spec.get("key")), typeOf(spec.get("value")))
    case "wrapper" => ProtoWrapper(typeOf(spec.get("value")))
    case "timestamp" => ProtoTimestamp
    case "enum" =>
      val values = spec.get("values").properties().asScala.map(entry => entry.getKey.toInt -> entry.getValue.asText).toMap
      ProtoEnum(spec.get("name").asText, values)
    case scalar => ProtoScalar(scalar)
  }
}

/** The messages of a schema by their paths: all that must be known of a writer's schema, since fields go by numbers. */
private[headrace] object ProtoNames {
  def of(text: String): Map[Seq[Int], String] = {
    val stripped = text.trim
    val descriptor =
      if (stripped.matches("[A-Za-z0-9+/=\\s]+")) Try(FileDescriptorProto.parseFrom(Base64.getMimeDecoder.decode(stripped))).toOption else None
    descriptor.filter(_.getMessageTypeCount > 0).map(fromDescriptor).getOrElse(fromText(text))
  }

  private def fromDescriptor(file: FileDescriptorProto): Map[Seq[Int], String] = {
    def visit(message: DescriptorProto, scope: String, path: Seq[Int]): Seq[(Seq[Int], String)] = {
      val full = joined(scope, message.getName)
      (path -> full) +: message.getNestedTypeList.asScala.toSeq.zipWithIndex.flatMap { case (nested, i) => visit(nested, full, path :+ i) }
    }
    file.getMessageTypeList.asScala.toSeq.zipWithIndex.flatMap { case (message, i) => visit(message, file.getPackage, Seq(i)) }.toMap
  }

  private val token = "(?s)//[^\n]*|/\\*.*?\\*/|\"(?:[^\"\\\\]|\\\\.)*\"|'(?:[^'\\\\]|\\\\.)*'|[\\w.]+|[{};]".r

  private def fromText(text: String): Map[Seq[Int], String] = {
    val words = token.findAllIn(text).filterNot(w => w.startsWith("//") || w.startsWith("/*")).toArray
    val found = mutable.Map.empty[Seq[Int], String]
    // Of each open brace: the message that it belongs to, with the number of messages met in it so far.
    val open = mutable.Stack[Scope](new Scope("", Seq.empty))
    var i = 0
    while (i < words.length) {
      def word(ahead: Int): String = if (i + ahead < words.length) words(i + ahead) else ""
      if (words(i) == "package" && open.size == 1 && word(2) == ";") open.top.name = word(1)
      if (words(i) == "message" && word(2) == "{") {
        val scope = new Scope(joined(open.top.name, word(1)), open.top.path :+ open.top.messages)
        open.top.messages += 1
        found(scope.path) = scope.name
        open.push(scope)
        i += 2
      } else if (words(i) == "{") open.push(new Scope(open.top.name, open.top.path, nested = open.top.messages))
      else if (words(i) == "}" && open.size > 1) open.pop()
      i += 1
    }
    found.toMap
  }

  private final class Scope(var name: String, val path: Seq[Int], nested: Int = 0) { var messages: Int = nested }

  private def joined(scope: String, name: String): String = if (scope.isEmpty) name else s"$scope.$name"
}
