package org.apache.spark.sql.headrace

import java.time.Duration
import java.util.{Collections, Properties}
import java.util.concurrent.{ConcurrentHashMap, ExecutionException}
import java.util.concurrent.atomic.AtomicReference

import scala.jdk.CollectionConverters._

import org.apache.kafka.clients.admin.{Admin, AdminClientConfig, ListConsumerGroupOffsetsOptions}
import org.apache.kafka.clients.consumer.{ConsumerConfig, ConsumerGroupMetadata, KafkaConsumer, OffsetAndMetadata}
import org.apache.kafka.clients.producer.{Callback, KafkaProducer, ProducerConfig, ProducerRecord, RecordMetadata}
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.errors.TimeoutException
import org.apache.kafka.common.serialization.{ByteArrayDeserializer, ByteArraySerializer}

/** A producer that lives from batch to batch, for one (writer, partition): opening one takes several round trips. */
sealed trait PooledProducer {
  def id: String
  def close(): Unit
}

/** A batch as the markers know it: its number, and a hash of where its input ends. A batch that comes again has the same. */
case class BatchId(number: Long, input: String)

/** The producer of what is written exactly once, and the last batch that it is known to have committed. */
final class TransactionalProducer(settings: WriterSettings, val id: String) extends PooledProducer {
  private val marker = new TopicPartition(settings.markerTopic, 0)
  private val failure = new AtomicReference[Exception]()
  private val callback: Callback = (_: RecordMetadata, problem: Exception) => if (problem != null) failure.compareAndSet(null, problem)
  private val kafka = TransactionalProducers.open(settings, Some(id))
  private var last = TransactionalProducer.NoBatch
  private var lastClaim = TransactionalProducer.NoBatch
  try {
    // Fences an older producer of this id and ends its open transaction, so that the markers read next are the last word.
    kafka.initTransactions()
    last = marked(id)
    if (settings.claims) lastClaim = marked(claims)
  } catch { case problem: Throwable => close(); throw problem }

  /**
   * Whether the batch is one that a task of before has committed. It can only be the last one: if later batches have been written the checkpoint
   * has gone back, its batches need not have the input of those that were written, and to skip them would lose records.
   */
  def hasCommitted(batch: BatchId): Boolean = isThere(last, batch)

  private def isThere(last: BatchId, batch: BatchId): Boolean = {
    // Earlier versions did not note the input.
    val another = last.number == batch.number && last.input.nonEmpty && last.input != batch.input
    if (last.number > batch.number || another) {
      close()
      throw new IllegalStateException(s"StaleCheckpoint: batch ${batch.number} comes again, and $id has written up to batch ${last.number}")
    }
    last.number == batch.number
  }

  def begin(): Unit = kafka.beginTransaction()

  def send(record: ProducerRecord[Array[Byte], Array[Byte]]): Unit = {
    throwFailure()
    kafka.send(record, callback)
  }

  def commit(batch: BatchId, position: Map[TopicPartition, Long]): Unit = {
    kafka.flush()
    throwFailure()
    mark(batch, id)
    if (position.nonEmpty) {
      val offsets = position.map { case (partition, offset) => partition -> new OffsetAndMetadata(offset) }
      kafka.sendOffsetsToTransaction(offsets.asJava, new ConsumerGroupMetadata(settings.group))
    }
    kafka.commitTransaction()
    last = batch
  }

  /** Whether the batch was nobody's, and is now this one's: no later attempt will be told so. */
  def claim(batch: BatchId): Boolean = !isThere(lastClaim, batch) && {
    kafka.beginTransaction()
    mark(batch, claims)
    kafka.commitTransaction()
    lastClaim = batch
    true
  }

  // No wait: what is buffered belongs to a transaction that will be aborted.
  override def close(): Unit = kafka.close(Duration.ZERO)

  private def claims = s"$id-claims"

  private def mark(batch: BatchId, group: String): Unit = kafka.sendOffsetsToTransaction(
    Collections.singletonMap(marker, new OffsetAndMetadata(batch.number + 1, s"${settings.generation}/${batch.input}")),
    new ConsumerGroupMetadata(group))

  private def throwFailure(): Unit = { val problem = failure.get(); if (problem != null) throw problem }

  private def marked(group: String): BatchId = {
    val committed =
      try stable(group)
      catch { case late: TimeoutException =>
        // Nobody else writes to this group, and initTransactions has ended what this id left open. If the group can be
        // read all the same, what keeps it unstable is a transaction that the broker has forgotten to end.
        ask(group)
        throw new IllegalStateException(s"HangingTransaction: the offset of $marker in group $group waits for one", late)
      }
    val (generation, input) = if (committed == null) ("", "") else committed.metadata().span(_ != '/')
    if (committed == null || generation != settings.generation) TransactionalProducer.NoBatch
    else BatchId(committed.offset() - 1, input.stripPrefix("/"))
  }

  /** What is committed once no transaction is open; of Kafka's clients, only a consumer waits for that. */
  private def stable(group: String): OffsetAndMetadata = {
    val properties = shared(ConsumerConfig.configNames())
    properties.put(ConsumerConfig.GROUP_ID_CONFIG, group)
    properties.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed")
    properties.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, classOf[ByteArrayDeserializer].getName)
    properties.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, classOf[ByteArrayDeserializer].getName)
    val consumer = new KafkaConsumer[Array[Byte], Array[Byte]](properties)
    try consumer.committed(Collections.singleton(marker), TransactionalProducers.StableWithin).get(marker) finally consumer.close()
  }

  /** Fails unless the group's coordinator answers. */
  private def ask(group: String): Unit = {
    val admin = Admin.create(shared(AdminClientConfig.configNames()))
    val options = new ListConsumerGroupOffsetsOptions().timeoutMs(TransactionalProducers.StableWithin.toMillis.toInt)
    try admin.listConsumerGroupOffsets(group, options).all().get()
    catch { case wrapped: ExecutionException => throw wrapped.getCause }
    finally admin.close(Duration.ZERO)
  }

  /** Security settings are shared by all Kafka clients; what only a producer knows is left out. */
  private def shared(known: java.util.Set[String]): Properties = {
    val properties = new Properties
    settings.producer.foreach { case (name, value) => if (known.contains(name)) properties.put(name, value) }
    properties
  }
}

object TransactionalProducer {
  private val NoBatch = BatchId(-1, "")
}

/** The producer of what is written outside of a transaction: idempotent, so that its own retries write nothing twice. */
final class PlainProducer(settings: WriterSettings, val id: String) extends PooledProducer {
  private val failure = new AtomicReference[Exception]()
  private val required: Callback = (_: RecordMetadata, problem: Exception) => if (problem != null) failure.compareAndSet(null, problem)
  private val kafka = TransactionalProducers.open(settings, None)

  /** What `must` be written fails the task if it is not; the rest may get lost. */
  def send(record: ProducerRecord[Array[Byte], Array[Byte]], must: Boolean): Unit = {
    throwFailure()
    kafka.send(record, if (must) required else null)
  }

  def flush(): Unit = { kafka.flush(); throwFailure() }
  override def close(): Unit = kafka.close(Duration.ZERO)
  private def throwFailure(): Unit = { val problem = failure.get(); if (problem != null) throw problem }
}

/** The producers of this JVM that wait for their next batch. */
object TransactionalProducers {
  /** The end of a transaction takes milliseconds; a broker that comes back may need some seconds for it. */
  private[headrace] val StableWithin = Duration.ofSeconds(20)
  private val idle = new ConcurrentHashMap[String, PooledProducer]()

  def acquire(settings: WriterSettings, partition: Int): TransactionalProducer = {
    val id = s"${settings.writer}-$partition"
    idle.remove(id) match { case pooled: TransactionalProducer => pooled; case _ => new TransactionalProducer(settings, id) }
  }

  def acquirePlain(settings: WriterSettings, partition: Int): PlainProducer = {
    val id = s"${settings.writer}-$partition-plain"
    idle.remove(id) match { case pooled: PlainProducer => pooled; case _ => new PlainProducer(settings, id) }
  }

  def release(producer: PooledProducer): Unit = {
    val displaced = idle.put(producer.id, producer)
    if (displaced != null) displaced.close()
  }

  /** Called when a query stops, so that its producers do not outlive it. */
  def closeAll(writer: String): Unit = {
    idle.keySet().forEach { id =>
      if (id.startsWith(writer + "-")) { val producer = idle.remove(id); if (producer != null) producer.close() }
    }
    PositionCommits.close(writer)
    Intake.forget(writer)
  }

  private[headrace] def open(settings: WriterSettings, transactionalId: Option[String]): KafkaProducer[Array[Byte], Array[Byte]] = {
    val properties = new Properties
    settings.producer.foreach { case (name, value) => properties.put(name, value) }
    transactionalId match {
      case Some(id) => properties.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, id)
      case None => properties.remove(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG)
    }
    properties.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, classOf[ByteArraySerializer].getName)
    properties.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, classOf[ByteArraySerializer].getName)
    new KafkaProducer[Array[Byte], Array[Byte]](properties)
  }
}
