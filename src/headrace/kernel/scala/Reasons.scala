package org.apache.spark.sql.headrace

import java.time.{Duration, Instant}

/** Why a row left the main route, in words for the person who finds it there. */
object Reasons {
  def late(time: Long, watermark: Long): String =
    s"event time ${Instant.ofEpochMilli(time)} is ${span(watermark - time)} behind the watermark ${Instant.ofEpochMilli(watermark)}"

  def beyondMemory(time: Long, watermark: Long, within: Long, step: String): String =
    s"${late(time, watermark)}; step `$step` remembers ids for ${span(within)} and can't tell whether this is a duplicate"

  def lateForWindow(time: Long, watermark: Long, step: String): String =
    s"event time ${Instant.ofEpochMilli(time)} is too late for step `$step`: its windows are closed, the watermark is ${Instant.ofEpochMilli(watermark)}"

  def resultFailed(step: String, window: Span, problem: Throwable): String = {
    val bounds = if (window.end == WindowAssigner.EndOfTime) "" else s" ${Instant.ofEpochMilli(window.start)} to ${Instant.ofEpochMilli(window.end)}"
    s"step `$step` could not compute the result of its window$bounds: ${failed(problem)}"
  }

  def noId(step: String, columns: Array[String]): String =
    s"step `$step` knows an event by its id, and ${columns.map(c => s"`$c`").mkString(" or ")} is null"

  def duplicate(step: String): String = s"step `$step` has seen this id"

  def stepFailed(step: String, problem: Throwable): String = s"$step failed: ${failed(problem)}"

  /**
   * What failed, and in the lines after it the stack: where a reason has more than one line, the rest is a header of its own. Spark says
   * in further lines of a message where in its own code the expression was made: of no use here.
   */
  def failed(problem: Throwable): String = {
    val message = String.valueOf(problem.getMessage).linesIterator.nextOption().getOrElse("")
    val stack = problem.getStackTrace.take(StackLines).map(frame => s"\n\tat $frame").mkString
    s"${problem.getClass.getSimpleName}: $message$stack"
  }

  private val StackLines = 30

  private def span(millis: Long): String = Duration.ofMillis(millis).toString.stripPrefix("PT").toLowerCase
}
