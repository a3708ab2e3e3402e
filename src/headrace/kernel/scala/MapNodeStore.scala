package org.apache.spark.sql.headrace

import org.apache.spark.sql.streaming.{MapState, StatefulProcessorHandle, TTLConfig}

/** Nodes in Spark's map state, under the key that the operator is working on. */
final class MapNodeStore(state: MapState[Long, Array[Byte]]) extends NodeStore {
  // Spark answers null for an absent key, so one look-up does for `containsKey` and `getValue`.
  override def get(id: Long): Array[Byte] = state.getValue(id)
  override def put(id: Long, bytes: Array[Byte]): Unit = state.updateValue(id, bytes)
  override def remove(id: Long): Unit = state.removeKey(id)
}

object MapNodeStore {
  def open(handle: StatefulProcessorHandle, name: String): MapNodeStore =
    new MapNodeStore(handle.getMapState[Long, Array[Byte]](name, StateEncoders.Long, StateEncoders.Bytes, TTLConfig.NONE))
}
