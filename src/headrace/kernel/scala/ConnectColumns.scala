package org.apache.spark.sql.headrace

import org.apache.spark.connect.proto
import org.apache.spark.sql.Column
import org.apache.spark.sql.classic.{ExpressionUtils, SparkSession}
import org.apache.spark.sql.connect.planner.SparkConnectPlanner
import org.apache.spark.sql.connect.service.SessionHolder

/**
 * Columns that were written before a session existed. PySpark builds those as Spark Connect expressions, in pure Python; here they
 * become ordinary columns of this session, by Spark Connect's own planner.
 */
object ConnectColumns {
  def toColumn(session: SparkSession, expression: Array[Byte]): Column = {
    val planner = new SparkConnectPlanner(SessionHolder("headrace", "headrace", session))
    ExpressionUtils.column(planner.transformExpression(proto.Expression.parseFrom(expression)))
  }
}
