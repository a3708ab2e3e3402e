package org.apache.spark.sql.headrace

import java.nio.ByteBuffer
import java.util.Arrays

import scala.collection.mutable

import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.hash.Murmur3_x86_32

/**
 * The ids that one key has seen, each with its event time: a linear-hashing table whose shards are state entries of about
 * `ShardTarget` ids. A look-up reads one or two shards however many ids there are, the table grows by one shard at a time (no
 * pause to rehash), and a key with few ids is one state entry. Ids are compared whole, never by hash alone: a collision would lose an event.
 */
final class IdSet(store: NodeStore) {
  import IdSet._

  private val shards = mutable.LongMap.empty[Shard]
  private var shardCount = 1L
  private var size = 0L
  /** The time of the oldest id, or a bound below it. */
  private var oldest = Long.MaxValue
  private var headerDirty = false
  private val writer = new ByteWriter(1024)

  var due: Long = TimeTree.NoTimer

  def load(): Unit = {
    shards.clear()
    shardCount = 1L
    size = 0L
    oldest = Long.MaxValue
    due = TimeTree.NoTimer
    headerDirty = false
    val bytes = store.get(0L)
    if (bytes != null) {
      val in = ByteBuffer.wrap(bytes)
      shardCount = in.getLong()
      size = in.getLong()
      oldest = in.getLong()
      due = in.getLong()
      shards.update(0L, Shard.read(in))
    }
  }

  def isEmpty: Boolean = size == 0
  def first: Long = oldest
  def setDue(time: Long): Unit = { due = time; headerDirty = true }

  /** The time at which the id was first seen, or `Absent`. */
  def find(id: Array[Byte]): Long = shard(address(hash(id), shardCount)).find(hash(id), id)

  /** Adds an id that is absent, or moves the time of one that is there. */
  def put(id: Array[Byte], time: Long): Unit = {
    val h = hash(id)
    val target = shard(address(h, shardCount))
    if (target.put(h, id, time)) size += 1
    oldest = math.min(oldest, time)
    headerDirty = true
    if (size > shardCount * ShardTarget) grow()
  }

  private def grow(): Unit = {
    val source = shard(shardCount - java.lang.Long.highestOneBit(shardCount))
    val fresh = new Shard
    shards.update(shardCount, fresh)
    shardCount += 1
    source.moveTo(fresh, h => address(h, shardCount) == shardCount - 1)
  }

  /** Drops ids seen at or before the horizon. */
  def prune(horizon: Long): Unit = if (size > 0 && oldest <= horizon) {
    oldest = Long.MaxValue
    var i = 0L
    while (i < shardCount) {
      val s = shard(i)
      size -= s.dropUntil(horizon)
      oldest = math.min(oldest, s.oldest)
      i += 1
    }
    headerDirty = true
  }

  def save(): Unit = {
    if (size == 0) {
      if (headerDirty) { var i = 0L; while (i < shardCount) { store.remove(i); i += 1 } }
      shardCount = 1L
      due = TimeTree.NoTimer
      shards.clear()
    } else {
      shards.foreachEntry { (i, s) =>
        if (i == 0L && (headerDirty || s.dirty)) {
          writer.clear()
          writer.putLong(shardCount); writer.putLong(size); writer.putLong(oldest); writer.putLong(due)
          s.write(writer)
          store.put(0L, writer.toBytes)
        } else if (i != 0L && s.dirty) {
          writer.clear()
          s.write(writer)
          store.put(i, writer.toBytes)
        }
        s.dirty = false
      }
    }
    headerDirty = false
  }

  private def shard(i: Long): Shard = shards.getOrElseUpdate(i, {
    val bytes = store.get(i)
    if (bytes == null) new Shard else Shard.read(ByteBuffer.wrap(bytes))
  })
}

object IdSet {
  val Absent: Long = Long.MinValue
  val ShardTarget = 32L

  private def hash(id: Array[Byte]): Int = Murmur3_x86_32.hashUnsafeBytes(id, Platform.BYTE_ARRAY_OFFSET, id.length, 42)

  /** Linear hashing: the low bits of the next power of two, or one bit fewer where that shard does not exist yet. */
  private def address(hash: Int, shards: Long): Long = {
    val h = hash & 0xffffffffL
    val top = java.lang.Long.highestOneBit(shards)
    val long = h & (2 * top - 1)
    if (long < shards) long else h & (top - 1)
  }

  /** A list of (hash, time, id). */
  private final class Shard {
    var hashes = new Array[Int](4)
    var times = new Array[Long](4)
    var ids = new Array[Array[Byte]](4)
    var size = 0
    var dirty = false

    def indexOf(hash: Int, id: Array[Byte]): Int = {
      var i = 0
      while (i < size) {
        if (hashes(i) == hash && Arrays.equals(ids(i), id)) return i
        i += 1
      }
      -1
    }

    def find(hash: Int, id: Array[Byte]): Long = { val i = indexOf(hash, id); if (i < 0) Absent else times(i) }

    /** True if the id is new here. */
    def put(hash: Int, id: Array[Byte], time: Long): Boolean = {
      dirty = true
      val i = indexOf(hash, id)
      if (i >= 0) times(i) = time else append(hash, id, time)
      i < 0
    }

    def append(hash: Int, id: Array[Byte], time: Long): Unit = {
      if (size == hashes.length) {
        hashes = Arrays.copyOf(hashes, size * 2)
        times = Arrays.copyOf(times, size * 2)
        ids = Arrays.copyOf(ids, size * 2)
      }
      hashes(size) = hash; times(size) = time; ids(size) = id
      size += 1
    }

    private def keep(wanted: Int => Boolean): Int = {
      var kept = 0
      var i = 0
      while (i < size) {
        if (wanted(i)) { hashes(kept) = hashes(i); times(kept) = times(i); ids(kept) = ids(i); kept += 1 }
        i += 1
      }
      val dropped = size - kept
      size = kept
      if (dropped > 0) dirty = true
      dropped
    }

    def moveTo(target: Shard, moves: Int => Boolean): Unit = {
      keep { i => val go = moves(hashes(i)); if (go) target.append(hashes(i), ids(i), times(i)); !go }
      target.dirty = true
    }

    def dropUntil(horizon: Long): Int = keep(times(_) > horizon)

    def oldest: Long = { var min = Long.MaxValue; var i = 0; while (i < size) { min = math.min(min, times(i)); i += 1 }; min }

    def write(out: ByteWriter): Unit = {
      out.putInt(size)
      var i = 0
      while (i < size) {
        out.putInt(hashes(i)); out.putLong(times(i)); out.putInt(ids(i).length); out.putBytes(ids(i))
        i += 1
      }
    }
  }

  private object Shard {
    def read(in: ByteBuffer): Shard = {
      val shard = new Shard
      var left = in.getInt()
      while (left > 0) {
        val hash = in.getInt()
        val time = in.getLong()
        val id = new Array[Byte](in.getInt())
        in.get(id)
        shard.append(hash, id, time)
        left -= 1
      }
      shard
    }
  }
}
