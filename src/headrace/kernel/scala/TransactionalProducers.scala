package org.apache.spark.sql.headrace

import java.time.Duration
import java.util.{Collections, Properties}
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicReference

import org.apache.kafka.clients.consumer.{ConsumerConfig, ConsumerGroupMetadata, KafkaConsumer, OffsetAndMetadata}
import org.apache.kafka.clients.producer.{Callback, KafkaProducer, ProducerConfig, ProducerRecord, RecordMetadata}
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.serialization.{ByteArrayDeserializer, ByteArraySerializer}

/** A producer for one (writer, partition), and the last batch that it is known to have committed. */
final class TransactionalProducer(settings: WriterSettings, val id: String) {
  private val marker = new TopicPartition(settings.markerTopic, 0)
  private val failure = new AtomicReference[Exception]()
  private val callback: Callback = (_: RecordMetadata, problem: Exception) => if (problem != null) failure.compareAndSet(null, problem)
  private val kafka = new KafkaProducer[Array[Byte], Array[Byte]](producerProperties)
  var lastBatch: Long = {
    // Fences an older producer of this id and ends its open transaction, so that the marker read next is the last word.
    kafka.initTransactions()
    committedBatch()
  }

  def begin(): Unit = kafka.beginTransaction()

  def send(record: ProducerRecord[Array[Byte], Array[Byte]]): Unit = {
    throwFailure()
    kafka.send(record, callback)
  }

  def commit(batch: Long): Unit = {
    kafka.flush()
    throwFailure()
    kafka.sendOffsetsToTransaction(
      Collections.singletonMap(marker, new OffsetAndMetadata(batch + 1, settings.generation)), new ConsumerGroupMetadata(id))
    kafka.commitTransaction()
    lastBatch = batch
  }

  // No wait: what is buffered belongs to a transaction that will be aborted.
  def close(): Unit = kafka.close(Duration.ZERO)

  private def throwFailure(): Unit = { val problem = failure.get(); if (problem != null) throw problem }

  private def producerProperties: Properties = {
    val properties = new Properties
    settings.producer.foreach { case (name, value) => properties.put(name, value) }
    properties.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, id)
    properties.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, classOf[ByteArraySerializer].getName)
    properties.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, classOf[ByteArraySerializer].getName)
    properties
  }

  private def committedBatch(): Long = {
    val properties = new Properties
    // Security settings are shared by all Kafka clients; what only a producer knows is left out.
    settings.producer.foreach { case (name, value) => if (ConsumerConfig.configNames().contains(name)) properties.put(name, value) }
    properties.put(ConsumerConfig.GROUP_ID_CONFIG, id)
    properties.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed")
    properties.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, classOf[ByteArrayDeserializer].getName)
    properties.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, classOf[ByteArrayDeserializer].getName)
    val consumer = new KafkaConsumer[Array[Byte], Array[Byte]](properties)
    try {
      val committed = consumer.committed(Collections.singleton(marker)).get(marker)
      if (committed == null || committed.metadata() != settings.generation) -1L else committed.offset() - 1
    } finally consumer.close()
  }
}

/** Producers live from batch to batch, one per (writer, partition) in this JVM: opening one takes several round trips. */
object TransactionalProducers {
  private val idle = new ConcurrentHashMap[String, TransactionalProducer]()

  def acquire(settings: WriterSettings, partition: Int): TransactionalProducer = {
    val id = s"${settings.writer}-$partition"
    val pooled = idle.remove(id)
    if (pooled != null) pooled else new TransactionalProducer(settings, id)
  }

  def release(producer: TransactionalProducer): Unit = {
    val displaced = idle.put(producer.id, producer)
    if (displaced != null) displaced.close()
  }

  def discard(producer: TransactionalProducer): Unit = producer.close()

  /** Called when a query stops, so that its producers do not outlive it. */
  def closeAll(writer: String): Unit = idle.keySet().forEach { id =>
    if (id.startsWith(writer + "-")) { val producer = idle.remove(id); if (producer != null) producer.close() }
  }
}
