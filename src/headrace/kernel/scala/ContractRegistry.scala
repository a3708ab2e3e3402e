package org.apache.spark.sql.headrace

import java.io.InputStream
import java.net.URI
import java.net.http.{HttpClient, HttpRequest, HttpResponse}
import java.time.Duration
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

/**
 * How to reach a registry. It travels to the tasks inside an expression, so it must never show its secrets: `toString` is what a plan
 * prints.
 */
final class RegistryAccess(
    val urls: Seq[String], authorization: Option[String], val tls: Option[TlsFiles], val patienceMs: Long) extends Serializable {
  private[headrace] def headers: Seq[(String, String)] = authorization.map("Authorization" -> _).toSeq
  private[headrace] def identity: AnyRef = (urls, authorization, tls)
  override def toString: String = s"registry ${urls.mkString(",")}"
  override def equals(other: Any): Boolean = other match {
    case that: RegistryAccess => identity == that.identity
    case _ => false
  }
  override def hashCode: Int = urls.hashCode
}

/** A schema as the registry has it, with all that it refers to, each after what it needs itself. */
final case class RegistrySchema(kind: String, text: String, references: Seq[(String, String)])

/** Stops the query: the registry can't be asked, so nobody knows whether records are good or bad. */
final class RegistryUnavailable(message: String) extends RuntimeException(message)

/**
 * The schemas of a registry by id, fetched on first sight and kept for as long as the process runs: an id never changes its meaning.
 *
 * A registry that does not answer is no fault of the record at hand: the task asks again, with pauses that grow to some seconds, and
 * the stream waits. When the patience is over the query stops, with nothing lost. Only a registry that answers that it has no such
 * schema makes a record a dead letter; that answer is kept for a while only, and so are at most so many of them.
 */
private[headrace] final class ContractRegistry(access: RegistryAccess) {
  private val known = new ConcurrentHashMap[Integer, RegistrySchema]
  private val unknown = new java.util.LinkedHashMap[Integer, java.lang.Long](16, 0.75f, true) {
    override def removeEldestEntry(eldest: java.util.Map.Entry[Integer, java.lang.Long]): Boolean = size > ContractRegistry.MostUnknown
  }
  private lazy val client = {
    val builder = HttpClient.newBuilder.connectTimeout(Duration.ofSeconds(5)).version(HttpClient.Version.HTTP_1_1)
    access.tls.foreach(files => builder.sslContext(TlsContext.of(files)))
    builder.build()
  }

  /** None if the registry has no schema of that id. */
  def schema(id: Int): Option[RegistrySchema] = {
    val found = known.get(id)
    if (found != null) Some(found) else if (id < 0 || knownToBeUnknown(id)) None else fetch(id)
  }

  /** One task asks, others wait for its answer. */
  private def fetch(id: Int): Option[RegistrySchema] = synchronized {
    if (known.containsKey(id)) Some(known.get(id))
    else if (knownToBeUnknown(id)) None
    else {
      val fetched = get(s"/schemas/ids/$id").map(withReferences)
      fetched match {
        case Some(schema) => known.put(id, schema)
        case None => unknown.synchronized(unknown.put(id, System.nanoTime()))
      }
      fetched
    }
  }

  private def knownToBeUnknown(id: Int): Boolean = unknown.synchronized {
    val since = unknown.get(id)
    since != null && System.nanoTime() - since < ContractRegistry.UnknownNanos
  }

  private def withReferences(schema: JsonNode): RegistrySchema = {
    val found = new java.util.LinkedHashMap[String, String]
    def visit(node: JsonNode, depth: Int): Unit = {
      if (depth > 50) throw new RegistryUnavailable("references of schemas go round in a circle")
      node.path("references").elements().asScala.foreach { reference =>
        val name = reference.get("name").asText
        if (!found.containsKey(name)) {
          val subject = java.net.URLEncoder.encode(reference.get("subject").asText, "UTF-8").replace("+", "%20")
          val version = reference.get("version").asInt
          // A version that was deleted since is still what the schema means.
          val inner = get(s"/subjects/$subject/versions/$version?deleted=true")
            .getOrElse(throw new RegistryUnavailable(s"the registry has lost `$name`, to which a schema refers"))
          visit(inner, depth + 1)
          found.put(name, inner.get("schema").asText)
        }
      }
    }
    visit(schema, 0)
    RegistrySchema(schema.path("schemaType").asText("AVRO"), schema.get("schema").asText, found.asScala.toSeq)
  }

  /** None if the registry says that it does not have it. A bare 404 may come from anything that is no registry. */
  private def get(path: String): Option[JsonNode] = {
    val deadline = System.nanoTime() + access.patienceMs * 1000000L
    var attempt = 0
    var problem = ""
    while (attempt == 0 || System.nanoTime() < deadline) {
      if (attempt > 0) Thread.sleep(math.min(5000L, 100L << math.min(attempt - 1, 6)))
      val url = access.urls(attempt % access.urls.length)
      try {
        val response = send(url + path)
        val body = json(response.body)
        response.statusCode match {
          case 200 if body.hasNonNull("schema") => return Some(body)
          case 404 if body.path("error_code").asInt / 100 == 404 => return None
          case 401 | 403 => throw new RegistryUnavailable(s"the schema registry at $url does not let this pipeline in (${response.statusCode})")
          case status => problem = s"it answers $status ${body.path("message").asText}".trim
        }
      } catch {
        case unavailable: RegistryUnavailable => throw unavailable
        case interrupted: InterruptedException => throw interrupted
        case NonFatal(failure) => problem = Option(failure.getMessage).getOrElse(failure.getClass.getSimpleName)
      }
      attempt += 1
    }
    throw new RegistryUnavailable(s"the schema registry at ${access.urls.mkString(",")} could not be asked for $path: $problem")
  }

  private def send(url: String): HttpResponse[InputStream] = {
    val request = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(10))
      .header("Accept", "application/vnd.schemaregistry.v1+json, application/json")
    access.headers.foreach { case (name, value) => request.header(name, value) }
    client.send(request.GET().build(), HttpResponse.BodyHandlers.ofInputStream())
  }

  private def json(body: InputStream): JsonNode = {
    val bytes = try body.readNBytes(ContractRegistry.MostBytes) finally body.close()
    try ContractRegistry.mapper.readTree(bytes) catch { case NonFatal(_) => ContractRegistry.mapper.createObjectNode() }
  }
}

private[headrace] object ContractRegistry {
  private val mapper = new ObjectMapper
  private val MostBytes = 64 * 1024 * 1024
  private val MostUnknown = 10000
  private val UnknownNanos = 30L * 1000000000L
  private val opened = new ConcurrentHashMap[AnyRef, ContractRegistry]

  /** One per registry and process. */
  def of(access: RegistryAccess): ContractRegistry = opened.computeIfAbsent(access.identity, _ => new ContractRegistry(access))
}
