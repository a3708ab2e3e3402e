package org.apache.spark.sql.headrace

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.{ArrayBasedMapData, GenericArrayData}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * Protobuf messages of the contract as rows. Fields go by their numbers, so the writer's schema says only which message it is: one of
 * another name is a [[Misfit]]. Fields that the contract does not have are skipped. A number that an enum does not name comes as text.
 */
private[headrace] final class ProtoLanguage(contract: ContractSchema, slots: Int) extends ContractLanguage {
  private val message = ProtoLayout.parse(contract.text)
  private val body = new ProtoReader(message.fields, "")

  override def reader(written: RegistrySchema): PayloadReader = {
    val names = ProtoNames.of(written.text)
    val isFirst = names.get(WireFormat.FirstMessage).contains(message.name)
    val cursor = new ByteCursor
    payload => {
      val in = cursor.over(payload, WireFormat.Header)
      val path = WireFormat.messagePath(in)
      if (!(isFirst && (path eq WireFormat.FirstMessage))) names.get(path) match {
        case Some(message.name) =>
        case Some(other) => throw new Misfit(s"the payload is a message `$other`, the contract's is `${message.name}`")
        case None => throw new Misfit(s"the payload names the message ${path.mkString("[", ",", "]")}, which its schema does not have")
      }
      val row = new DecodedRow(slots)
      try body.fill(in, row) catch { case _: StackOverflowError => throw new Misfit("the payload is nested too deeply") }
      row
    }
  }
}

/** Fills a row from the bytes up to the cursor's limit. */
private[headrace] final class ProtoReader(fields: Array[ProtoField], prefix: String) {
  private val slotOf = fields.zipWithIndex.map { case (f, i) => (f.number, i) }.toMap
  // Nearly all messages number their fields from one.
  private val small = Array.tabulate(64)(number => slotOf.getOrElse(number, -1))
  private val readers = fields.map(f => valueOf(f.of, prefix + f.name))
  private val wires = fields.map(f => wire(f.of))
  private val absent = fields.map(f => if (f.presence || f.required) null else default(f.of))

  def fill(in: ByteCursor, row: DecodedRow): Unit = {
    var collected: Array[ArrayBuffer[Any]] = null
    while (!in.atEnd) {
      val tag = in.readVarint()
      val number = (tag >>> 3).toInt
      val wireType = (tag & 7).toInt
      val slot = if (number >= 0 && number < 64) small(number) else slotOf.getOrElse(number, -1)
      if (number <= 0) throw new Misfit("the payload has a field without a number")
      if (slot < 0) skip(in, wireType)
      else fields(slot).of match {
        case ProtoArray(element, _) =>
          if (collected == null) collected = new Array[ArrayBuffer[Any]](fields.length)
          if (collected(slot) == null) collected(slot) = new ArrayBuffer[Any]
          if (wireType == 2 && wire(element) != 2) {
            val outer = in.narrow(in.checkedLength(in.readVarint()))
            while (!in.atEnd) collected(slot) += readers(slot).read(in)
            in.widen(outer)
          } else {
            expect(wireType, wire(element), slot)
            collected(slot) += readers(slot).read(in)
          }
        case _: ProtoMap =>
          expect(wireType, 2, slot)
          if (collected == null) collected = new Array[ArrayBuffer[Any]](fields.length)
          if (collected(slot) == null) collected(slot) = new ArrayBuffer[Any]
          collected(slot) += readers(slot).read(in)
        case _ =>
          expect(wireType, wires(slot), slot)
          readers(slot).into(in, row, slot)
      }
    }
    var i = 0
    while (i < fields.length) {
      if (collected != null && collected(i) != null) row.update(i, gathered(fields(i).of, collected(i)))
      else if (row.isNullAt(i)) {
        if (fields(i).required) throw new Misfit(s"required field `$prefix${fields(i).name}` is missing")
        row.update(i, absent(i))
      }
      i += 1
    }
  }

  private def gathered(of: ProtoType, values: ArrayBuffer[Any]): Any = of match {
    case _: ProtoMap =>
      val entries = new java.util.LinkedHashMap[Any, Any]
      values.foreach { entry => val (key, value) = entry.asInstanceOf[(Any, Any)]; entries.put(key, value) }
      ArrayBasedMapData(entries.keySet.toArray.asInstanceOf[Array[Any]], entries.values.toArray.asInstanceOf[Array[Any]])
    case _ => new GenericArrayData(values.toArray[Any])
  }

  private def expect(found: Int, wanted: Int, slot: Int): Unit =
    if (found != wanted) throw new Misfit(s"field `$prefix${fields(slot).name}` has another type than in the contract (wire type $found, not $wanted)")

  private def wire(of: ProtoType): Int = of match {
    case ProtoScalar("double" | "fixed64" | "sfixed64") => 1
    case ProtoScalar("float" | "fixed32" | "sfixed32") => 5
    case ProtoScalar("string" | "bytes") => 2
    case _: ProtoScalar | _: ProtoEnum => 0
    case _ => 2
  }

  private def skip(in: ByteCursor, wireType: Int): Unit = wireType match {
    case 0 => in.readVarint()
    case 1 => in.skip(8)
    case 2 => in.skip(in.checkedLength(in.readVarint()))
    case 5 => in.skip(4)
    case 3 | 4 => throw new Misfit("the payload has a group, which no field of a contract is")
    case other => throw new Misfit(s"the payload has the wire type $other, which there is not")
  }

  private def valueOf(of: ProtoType, path: String): ValueReader = of match {
    case ProtoScalar(kind) => scalar(kind)
    case ProtoEnum(_, values) =>
      val texts = values.map { case (number, name) => number -> UTF8String.fromString(name) }
      new Computed(in => { val n = in.readVarint().toInt; texts.getOrElse(n, UTF8String.fromString(n.toString)) })
    case ProtoArray(element, _) => valueOf(element, path)
    case ProtoMap(key, value) =>
      val entry = new ProtoReader(Array(ProtoField("key", 1, false, false, key), ProtoField("value", 2, false, false, value)), path + ".")
      new Computed(in => nested(in, entry, 2, row => (row.get(0, null), row.get(1, null))))
    case ProtoWrapper(value) =>
      val inner = new ProtoReader(Array(ProtoField("value", 1, false, false, value)), path + ".")
      new Computed(in => nested(in, inner, 1, row => row.get(0, null)))
    case ProtoTimestamp =>
      val parts = Array(ProtoField("seconds", 1, false, false, ProtoScalar("int64")), ProtoField("nanos", 2, false, false, ProtoScalar("int32")))
      val inner = new ProtoReader(parts, path + ".")
      new Computed(in => nested(in, inner, 2, row => try {
        Math.addExact(Math.multiplyExact(row.getLong(0), 1000000L), Math.floorDiv(row.getInt(1), 1000).toLong)
      } catch { case _: ArithmeticException => throw new Misfit(s"field `$path` is a time beyond all years") }))
    case ProtoStruct(inner) =>
      val reader = new ProtoReader(inner, path + ".")
      new Computed(in => nested(in, reader, inner.length, row => row))
  }

  private def nested(in: ByteCursor, reader: ProtoReader, width: Int, result: InternalRow => Any): Any = {
    val outer = in.narrow(in.checkedLength(in.readVarint()))
    val row = new DecodedRow(width)
    reader.fill(in, row)
    in.widen(outer)
    result(row)
  }

  private def scalar(kind: String): ValueReader = kind match {
    case "double" => AvroReaders.Doubles
    case "float" => AvroReaders.Floats
    case "int32" => new IntReader { override def int(in: ByteCursor): Int = in.readVarint().toInt }
    case "uint32" => new LongReader { override def long(in: ByteCursor): Long = in.readVarint() & 0xffffffffL }
    case "sint32" => new IntReader { override def int(in: ByteCursor): Int = in.readLong().toInt }
    case "fixed32" => new LongReader { override def long(in: ByteCursor): Long = in.readFixed32() & 0xffffffffL }
    case "sfixed32" => new IntReader { override def int(in: ByteCursor): Int = in.readFixed32() }
    case "int64" => new LongReader { override def long(in: ByteCursor): Long = in.readVarint() }
    case "uint64" => new Computed(in => unsigned(in.readVarint()))
    case "sint64" => AvroReaders.Longs
    case "fixed64" => new Computed(in => unsigned(in.readFixed64()))
    case "sfixed64" => new LongReader { override def long(in: ByteCursor): Long = in.readFixed64() }
    case "bool" => new Computed(in => in.readVarint() != 0)
    case "string" => new Computed(in => in.readText(in.checkedLength(in.readVarint())))
    case "bytes" => new Computed(in => in.readBytes(in.checkedLength(in.readVarint())))
  }

  private def unsigned(n: Long): Decimal = Decimal(BigDecimal(java.lang.Long.toUnsignedString(n)), 20, 0)

  private def default(of: ProtoType): Any = of match {
    case ProtoScalar("double") => 0.0
    case ProtoScalar("float") => 0.0f
    case ProtoScalar("int32" | "sint32" | "sfixed32") => 0
    case ProtoScalar("uint64" | "fixed64") => unsigned(0)
    case ProtoScalar("bool") => false
    case ProtoScalar("string") => UTF8String.EMPTY_UTF8
    case ProtoScalar("bytes") => Array.emptyByteArray
    case ProtoScalar(_) => 0L
    case ProtoEnum(_, values) => UTF8String.fromString(values.getOrElse(0, "0"))
    case _: ProtoArray => new GenericArrayData(Array.empty[Any])
    case _: ProtoMap => ArrayBasedMapData(Array.empty[Any], Array.empty[Any])
    case _: ProtoWrapper | _: ProtoStruct | ProtoTimestamp => null
  }
}
