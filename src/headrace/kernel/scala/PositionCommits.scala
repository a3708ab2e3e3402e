package org.apache.spark.sql.headrace

import java.util.Properties
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.kafka.clients.admin.{Admin, AdminClientConfig}
import org.apache.kafka.clients.consumer.OffsetAndMetadata
import org.apache.kafka.common.TopicPartition

import org.apache.spark.internal.Logging

/** The driver's part of a query's position in its consumer group. The checkpoint decides where a run goes on; this is to be seen. */
final class PositionCommits(settings: WriterSettings) extends Logging {
  private var last = Map.empty[TopicPartition, Long]

  def commit(position: Map[TopicPartition, Long]): Unit = {
    val moved = position.filter { case (partition, offset) => !last.get(partition).contains(offset) }
    if (moved.nonEmpty) try {
      val offsets = moved.map { case (partition, offset) => partition -> new OffsetAndMetadata(offset) }.asJava
      PositionCommits.admin(settings).alterConsumerGroupOffsets(settings.group, offsets).all().get(5, TimeUnit.SECONDS)
      last ++= moved
    } catch {
      // A batch that is written is not given up because a monitor can't see it; the next one commits again.
      case NonFatal(problem) => logWarning(s"The position of ${settings.group} could not be committed", problem)
    }
  }
}

object PositionCommits {
  private val admins = new ConcurrentHashMap[String, Admin]()

  private def admin(settings: WriterSettings): Admin = admins.computeIfAbsent(settings.writer, _ => {
    val properties = new Properties
    settings.producer.foreach { case (name, value) => if (AdminClientConfig.configNames().contains(name)) properties.put(name, value) }
    Admin.create(properties)
  })

  def close(writer: String): Unit = { val admin = admins.remove(writer); if (admin != null) admin.close(java.time.Duration.ZERO) }
}
