package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.expressions.{Literal, Murmur3Hash, Pmod}
import org.apache.spark.sql.streaming.{MapState, StatefulProcessorHandle, TTLConfig}

/**
 * Which keys of a partition wait for which processing time. Spark gives an operator timers of one kind only, and those are of event time; the
 * clock ticks by control rows instead, one per partition, and what they find due here is attended to.
 *
 * The notes lie in the partition's own state store, under a key that no row can have.
 */
final class Clock(state: MapState[Array[Byte], Long]) {
  /** The current key wants attention at that time; the later of two notes replaces the earlier. */
  def note(key: Array[Byte], time: Long): Unit = ForKey(Clock.Key) { state.updateValue(key, time) }

  /** Takes out the keys whose time has come, in the order of their times. */
  def due(now: Long): Seq[Array[Byte]] = ForKey(Clock.Key) {
    val found = state.iterator().filter(_._2 <= now).toArray.sortBy(_._2)
    found.foreach(e => state.removeKey(e._1))
    found.map(_._1).toSeq
  }
}

object Clock {
  private val Key: Array[Byte] = "clock".getBytes

  def open(handle: StatefulProcessorHandle): Clock =
    new Clock(handle.getMapState[Array[Byte], Long]("clock", StateEncoders.Bytes, StateEncoders.Long, TTLConfig.NONE))

  /** A key for each partition that Spark's hash partitioning sends there; no row's key has such a length. */
  def keys(partitions: Int): Seq[Array[Byte]] = {
    val candidates = Iterator.from(0).map(i => s"tick-$i".getBytes)
    val found = new Array[Array[Byte]](partitions)
    while (found.contains(null)) {
      val key = candidates.next()
      val partition = Pmod(new Murmur3Hash(Seq(Literal(key))), Literal(partitions)).eval().asInstanceOf[Int]
      if (found(partition) == null) found(partition) = key
    }
    found.toSeq
  }
}
