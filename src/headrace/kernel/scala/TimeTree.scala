package org.apache.spark.sql.headrace

import java.nio.ByteBuffer

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/** Where the nodes of one key's tree are kept. */
trait NodeStore {
  def get(id: Long): Array[Byte]
  def put(id: Long, bytes: Array[Byte]): Unit
  def remove(id: Long): Unit
}

/**
 * The events of one key in order of event time (ties in order of arrival), as a B+-tree whose inner entries carry the
 * measures of what lies below. Insert, range query, select by rank and expiry touch a logarithmic number of nodes, so the cost of
 * an event does not grow with the number of events in its window; a key with few events is one node, read and written at once.
 *
 * Nodes are loaded on first touch and written back by `save`. The root is always node 0; its bytes also carry the tree's header.
 */
final class TimeTree(width: Int, measures: Array[Measure], store: NodeStore) {
  import TimeTree._

  private val cache = mutable.LongMap.empty[Node]
  private val removed = mutable.Set.empty[Long]
  private val writer = new ByteWriter(4096)
  private val cursor = new UnsafeRow(width)
  private var root: Node = _
  private var nextId = 1L
  private var stored = false

  /** When the key's timer is due; `NoTimer` if none is registered. */
  var due: Long = NoTimer

  /** How many rows the last query was over. */
  var matched: Long = 0L

  /** Turns to the tree of the current key, which is empty if the key is `unknown`. */
  def load(unknown: Boolean): Unit = {
    cache.clear()
    removed.clear()
    val bytes = if (unknown) null else store.get(0L)
    stored = bytes != null
    if (stored) {
      val in = ByteBuffer.wrap(bytes)
      nextId = in.getLong()
      due = in.getLong()
      root = decode(0L, in)
    } else {
      nextId = 1L
      due = NoTimer
      root = new Leaf(0L)
    }
  }

  /** Writes back what changed. An empty tree leaves nothing behind. */
  def save(): Unit = {
    removed.foreach(store.remove)
    removed.clear()
    if (root.count == 0) {
      if (stored) store.remove(0L)
      stored = false
      root = new Leaf(0L)
      due = NoTimer
    } else {
      cache.valuesIterator.filter(_.dirty).foreach { node => writer.clear(); writeNode(node) }
      if (root.dirty) {
        writer.clear()
        writer.putLong(nextId)
        writer.putLong(due)
        writeNode(root)
        stored = true
      }
    }
  }

  private def writeNode(node: Node): Unit = {
    node.write(writer)
    store.put(node.id, writer.toBytes)
    node.stored = true
    node.dirty = false
  }

  def isEmpty: Boolean = root.count == 0
  def count: Long = root.count
  def first: Long = root.first
  def last: Long = root.last
  def setDue(time: Long): Unit = { due = time; root.dirty = true }
  def clearDue(): Unit = setDue(NoTimer)

  /**
   * Sees to it that the key is attended to if it falls silent: at the time given, which goes by its last event. But an event far ahead, as of a
   * clock that is wrong, must not hold the others for so long; `first` may be older than what is kept, since nodes are dropped as a whole.
   */
  def schedule(timers: Timers, time: Long, soon: Long, keptMs: Long): Unit = {
    val next = math.min(time, math.max(first, soon - keptMs) + FarAhead * keptMs)
    if (due == NoTimer || next + keptMs < due) { timers.register(next); setDue(next) }
  }

  /** Adds an event, behind those of the same time. */
  def insert(time: Long, row: UnsafeRow): Unit = {
    val sibling = insertInto(root, time, row)
    if (sibling != null) {
      val left = root
      left.id = newId()
      left.stored = false
      left.dirty = true
      cache.update(left.id, left)
      val top = new Inner(0L, left.level + 1)
      top.append(entryOf(left))
      top.append(entryOf(sibling))
      top.dirty = true
      root = top
    }
  }

  /** Gives the node that was split off, or null. */
  private def insertInto(node: Node, time: Long, row: UnsafeRow): Node = node match {
    case leaf: Leaf =>
      leaf.dirty = true
      val at = leaf.upperBound(time)
      if (leaf.size < LeafCapacity) {
        leaf.insert(at, time, row)
        null
      } else {
        // Events mostly come in order: at the end of a full leaf a new one begins, so that leaves stay full.
        val right = new Leaf(newId())
        right.dirty = true
        cache.update(right.id, right)
        if (at == leaf.size) right.insert(0, time, row)
        else {
          leaf.moveTail(LeafCapacity / 2, right)
          if (at <= leaf.size) leaf.insert(at, time, row) else right.insert(at - leaf.size, time, row)
        }
        right
      }
    case inner: Inner =>
      inner.dirty = true
      var i = inner.size - 1
      while (i > 0 && inner.firsts(i) > time) i -= 1
      val child = this.node(inner.children(i))
      val sibling = insertInto(child, time, row)
      if (sibling == null) {
        inner.firsts(i) = math.min(inner.firsts(i), time)
        inner.lasts(i) = math.max(inner.lasts(i), time)
        inner.counts(i) += 1
        inner.summaries(i) = extend(inner.summaries(i), row)
        null
      } else {
        inner.set(i, entryOf(child))
        inner.insert(i + 1, entryOf(sibling))
        if (inner.size <= InnerCapacity) null
        else {
          val right = new Inner(newId(), inner.level)
          right.dirty = true
          cache.update(right.id, right)
          // As above: an append leaves the left node full.
          inner.moveTail(if (i + 2 == inner.size) inner.size - 1 else inner.size / 2, right)
          right
        }
      }
  }

  /** Fills the measures with the events of (after, upTo] and, behind them, a row that is not in; only those in `wanted` are valid afterwards. */
  def query(after: Long, upTo: Long, row: UnsafeRow, wanted: Array[Measure]): Unit = {
    matched = 1L
    measures.foreach(_.reset())
    query(root, after, upTo, wanted)
    wanted.foreach(_.add(row))
  }

  private def query(node: Node, after: Long, upTo: Long, wanted: Array[Measure]): Unit = node match {
    case leaf: Leaf =>
      val from = leaf.upperBound(after)
      val until = leaf.upperBound(upTo)
      matched += math.max(0, until - from)
      if (wanted.length > 0) {
        var i = from
        while (i < until) {
          leaf.point(cursor, i)
          var m = 0
          while (m < wanted.length) { wanted(m).add(cursor); m += 1 }
          i += 1
        }
      }
    case inner: Inner =>
      var i = 0
      while (i < inner.size && inner.firsts(i) <= upTo) {
        if (inner.lasts(i) > after) {
          val whole = inner.firsts(i) > after && inner.lasts(i) <= upTo
          if (whole && (wanted.length == 0 || inner.summaries(i) != Unknown)) {
            matched += inner.counts(i)
            if (wanted.length > 0) merge(inner.summaries(i))
          } else query(this.node(inner.children(i)), after, upTo, wanted)
        }
        i += 1
      }
  }

  /** How many events are at that time or before it. */
  def countUpTo(time: Long): Long = {
    var before = 0L
    var node = root
    while (true) node match {
      case leaf: Leaf => return before + leaf.upperBound(time)
      case inner: Inner =>
        // Children hold times in order; those that begin later have nothing of it, nor has the first of all if it does.
        var i = inner.size - 1
        while (i > 0 && inner.firsts(i) > time) i -= 1
        before += inner.countBefore(i)
        node = this.node(inner.children(i))
    }
    throw new IllegalStateException("unreachable")
  }

  /** Points `target` at the event of that rank and gives its time; the row is valid until the next call. */
  def select(rank: Long, target: UnsafeRow): Long = {
    var left = rank
    var node = root
    while (true) node match {
      case leaf: Leaf =>
        leaf.point(target, left.toInt)
        return leaf.times(left.toInt)
      case inner: Inner =>
        var i = 0
        while (left >= inner.counts(i)) { left -= inner.counts(i); i += 1 }
        node = this.node(inner.children(i))
    }
    throw new IllegalStateException("unreachable")
  }

  /** Drops events at or before the horizon: exactly in a tree of one node, else by whole nodes. */
  def prune(horizon: Long): Unit = {
    var more = root.count > 0 && root.first <= horizon
    while (more) root match {
      case leaf: Leaf =>
        leaf.dropHead(leaf.upperBound(horizon))
        leaf.dirty = true
        more = false
      case inner: Inner =>
        more = false
        while (inner.size > 0 && inner.lasts(0) <= horizon) {
          drop(inner.children(0), inner.level - 1)
          inner.removeHead()
          inner.dirty = true
        }
        if (inner.size == 0) root = new Leaf(0L)
        else if (inner.size == 1) {
          val child = this.node(inner.children(0))
          forget(child.id)
          child.id = 0L
          child.dirty = true
          root = child
          more = root.first <= horizon
        }
    }
  }

  private def drop(id: Long, level: Int): Unit = {
    if (level > 0) {
      val inner = node(id).asInstanceOf[Inner]
      var i = 0
      while (i < inner.size) { drop(inner.children(i), level - 1); i += 1 }
    }
    forget(id)
  }

  private def forget(id: Long): Unit = if (cache.remove(id).forall(_.stored)) removed += id

  private def newId(): Long = { val id = nextId; nextId += 1; root.dirty = true; id }

  private def node(id: Long): Node = cache.getOrElseUpdate(id, {
    val read = decode(id, ByteBuffer.wrap(store.get(id)))
    read.stored = true
    read
  })

  private def entryOf(node: Node): Entry = Entry(node.id, node.first, node.last, node.count, node match {
    case leaf: Leaf => summaryOf {
      var i = 0
      while (i < leaf.size) { leaf.point(cursor, i); measures.foreach(_.add(cursor)); i += 1 }
    }
    case inner: Inner if inner.isKnown => summaryOf {
      var i = 0
      while (i < inner.size) { merge(inner.summaries(i)); i += 1 }
    }
    case _ => Unknown
  })

  private def extend(bytes: Array[Byte], row: UnsafeRow): Array[Byte] =
    if (bytes == Unknown) Unknown else summaryOf { merge(bytes); measures.foreach(_.add(row)) }

  private def merge(bytes: Array[Byte]): Unit = {
    val in = ByteBuffer.wrap(bytes)
    var m = 0
    while (m < measures.length) { measures(m).mergeFrom(in); m += 1 }
  }

  /**
   * The measures after they were filled. A node has the events of a longer time than a window may: what can't be computed over all of them, as a
   * sum that leaves its type, is no reason to refuse an event.
   */
  private def summaryOf(fill: => Unit): Array[Byte] = try {
    measures.foreach(_.reset())
    fill
    writer.clear()
    measures.foreach(_.write(writer))
    writer.toBytes
  } catch { case _: RowFailure => Unknown }
}

object TimeTree {
  val NoTimer: Long = Long.MinValue
  val LeafCapacity = 64
  val InnerCapacity = 32
  /** So many times what is kept. Events out of order by less need no timers of their own. */
  private val FarAhead = 8
  /** The summary of a node that has none: a query looks into the node. */
  val Unknown: Array[Byte] = null

  final case class Entry(child: Long, first: Long, last: Long, count: Long, summary: Array[Byte])

  private[headrace] def decode(id: Long, in: ByteBuffer): Node = in.getInt() match {
    case 0 => Leaf.read(id, in)
    case level => Inner.read(id, level, in)
  }
}
