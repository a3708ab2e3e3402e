package org.apache.spark.sql.headrace

import org.apache.spark.sql.{Encoder, Encoders}
import org.apache.spark.sql.catalyst.analysis.Analyzer
import org.apache.spark.sql.catalyst.encoders.{encoderFor, ExpressionEncoder}
import org.apache.spark.sql.catalyst.expressions.Attribute

/**
 * Encoders of what lies in state. Every task of every batch opens its state variables, and Spark resolves their encoders with its analyzer each
 * time, 10 ms for a variable: here it does so once.
 */
object StateEncoders {
  val Bytes: Encoder[Array[Byte]] = new ResolvedOnce(encoderFor(Encoders.BINARY))
  val Long: Encoder[Long] = new ResolvedOnce(encoderFor(Encoders.scalaLong))

  private final class ResolvedOnce[T](of: ExpressionEncoder[T]) extends ExpressionEncoder[T](of.encoder, of.objSerializer, of.objDeserializer) {
    private lazy val resolved = of.resolveAndBind()

    override def resolveAndBind(attrs: Seq[Attribute], analyzer: Analyzer): ExpressionEncoder[T] = resolved
  }
}
