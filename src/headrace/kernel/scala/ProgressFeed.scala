package org.apache.spark.sql.headrace

import java.util.{Collection => JCollection}
import java.util.concurrent.{CountDownLatch, LinkedBlockingQueue, TimeUnit}

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.streaming.{StreamingQueryListener, StreamingQueryProgress}
import org.apache.spark.sql.streaming.StreamingQueryListener._

/**
 * The progress of some queries, to be asked for. PySpark's own listener is called from the JVM and then asks back for each field, with a search
 * for classes for each: 90 to 140 ms of CPU for a batch, just when real time plans the next one.
 */
final class ProgressFeed(spark: SparkSession, queries: JCollection[String]) extends StreamingQueryListener {
  private case class Told(atNanos: Long, progress: Option[StreamingQueryProgress])

  private val told = new LinkedBlockingQueue[Told]
  private val ended = new CountDownLatch(1)
  spark.streams.addListener(this)

  /** Waits for the next one, until it is `ageMs` old or the feed ends, and returns it as JSON; null after the last one. */
  def next(ageMs: Long): String = {
    val next = told.take()
    next.progress.map { progress =>
      ended.await(TimeUnit.MILLISECONDS.toNanos(ageMs) - (System.nanoTime() - next.atNanos), TimeUnit.NANOSECONDS)
      progress.json
    }.orNull
  }

  /** No more after those that Spark has told already. */
  def end(): Unit = {
    spark.streams.removeListener(this)
    ended.countDown()
    told.put(Told(0, None))
  }

  override def onQueryProgress(event: QueryProgressEvent): Unit =
    if (queries.contains(event.progress.name)) told.put(Told(System.nanoTime(), Some(event.progress)))
  override def onQueryStarted(event: QueryStartedEvent): Unit = ()
  override def onQueryTerminated(event: QueryTerminatedEvent): Unit = ()
}
