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

  def load(unknown: Boolean): Unit = {
    shards.clear()
    shardCount = 1L
    size = 0L
    oldest = Long.MaxValue
    due = TimeTree.NoTimer
    headerDirty = false
    val bytes = if (unknown) null else store.get(0L)
    if (bytes == null) shards.update(0L, new Shard)
    else {
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
  def find(id: Array[Byte]): Long = { val h = hash(id); shard(address(h, shardCount)).find(h, id) }

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
  val ShardTarget = 64L

  private def hash(id: Array[Byte]): Int = Murmur3_x86_32.hashUnsafeBytes(id, Platform.BYTE_ARRAY_OFFSET, id.length, 42)

  /** Linear hashing: the low bits of the next power of two, or one bit fewer where that shard does not exist yet. */
  private def address(hash: Int, shards: Long): Long = {
    val h = hash & 0xffffffffL
    val top = java.lang.Long.highestOneBit(shards)
    val long = h & (2 * top - 1)
    if (long < shards) long else h & (top - 1)
  }

  /** Entries in one byte array, as they are stored: hash (4), time (8), length of the id (4), id. Nothing is unpacked to be searched. */
  private final class Shard(private var data: Array[Byte], private var used: Int, var size: Int) {
    var dirty = false

    def this() = this(Array.emptyByteArray, 0, 0)

    private def hashAt(at: Int): Int = Platform.getInt(data, Platform.BYTE_ARRAY_OFFSET + at)
    private def timeAt(at: Int): Long = Platform.getLong(data, Platform.BYTE_ARRAY_OFFSET + at + 4)
    private def lengthAt(at: Int): Int = Platform.getInt(data, Platform.BYTE_ARRAY_OFFSET + at + 12)
    private def next(at: Int): Int = at + HeaderSize + lengthAt(at)

    private def indexOf(hash: Int, id: Array[Byte]): Int = {
      var at = 0
      while (at < used) {
        if (hashAt(at) == hash && lengthAt(at) == id.length &&
            Arrays.equals(data, at + HeaderSize, at + HeaderSize + id.length, id, 0, id.length)) return at
        at = next(at)
      }
      -1
    }

    def find(hash: Int, id: Array[Byte]): Long = { val at = indexOf(hash, id); if (at < 0) Absent else timeAt(at) }

    /** True if the id is new here. */
    def put(hash: Int, id: Array[Byte], time: Long): Boolean = {
      dirty = true
      val at = indexOf(hash, id)
      if (at >= 0) Platform.putLong(data, Platform.BYTE_ARRAY_OFFSET + at + 4, time)
      else {
        room(HeaderSize + id.length)
        Platform.putInt(data, Platform.BYTE_ARRAY_OFFSET + used, hash)
        Platform.putLong(data, Platform.BYTE_ARRAY_OFFSET + used + 4, time)
        Platform.putInt(data, Platform.BYTE_ARRAY_OFFSET + used + 12, id.length)
        System.arraycopy(id, 0, data, used + HeaderSize, id.length)
        used += HeaderSize + id.length
        size += 1
      }
      at < 0
    }

    private def room(bytes: Int): Unit =
      if (used + bytes > data.length) data = Arrays.copyOf(data, math.max(used + bytes, math.max(data.length * 2, 256)))

    private def keep(wanted: Int => Boolean): Int = {
      val before = size
      var kept = 0
      var at = 0
      size = 0
      while (at < used) {
        val end = next(at)
        if (wanted(at)) {
          System.arraycopy(data, at, data, kept, end - at)
          kept += end - at
          size += 1
        }
        at = end
      }
      used = kept
      if (size < before) dirty = true
      before - size
    }

    def moveTo(target: Shard, moves: Int => Boolean): Unit = {
      keep { at =>
        val go = moves(hashAt(at))
        if (go) target.copyFrom(data, at, next(at) - at)
        !go
      }
      target.dirty = true
    }

    private def copyFrom(source: Array[Byte], at: Int, length: Int): Unit = {
      room(length)
      System.arraycopy(source, at, data, used, length)
      used += length
      size += 1
    }

    def dropUntil(horizon: Long): Int = keep(timeAt(_) > horizon)

    def oldest: Long = {
      var min = Long.MaxValue
      var at = 0
      while (at < used) { min = math.min(min, timeAt(at)); at = next(at) }
      min
    }

    def write(out: ByteWriter): Unit = { out.putInt(size); out.putBytes(data, 0, used) }
  }

  private val HeaderSize = 16

  private object Shard {
    def read(in: ByteBuffer): Shard = {
      val size = in.getInt()
      val data = new Array[Byte](in.remaining())
      in.get(data)
      new Shard(data, data.length, size)
    }
  }
}
