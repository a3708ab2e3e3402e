package org.apache.spark.sql.headrace

import java.io.ByteArrayOutputStream
import java.util.IdentityHashMap

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import org.apache.avro.{Resolver, Schema}
import org.apache.avro.generic.{GenericData, GenericDatumWriter}
import org.apache.avro.io.EncoderFactory

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.{ArrayBasedMapData, GenericArrayData}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * A reader of one writer's schema, made once per pair of schemas: what Avro's own resolution decides (order of fields, promotions,
 * defaults, aliases, branches of unions, symbols of enums), straight from bytes to Spark's rows.
 *
 * A union with null is a column that may be null. Another union is a struct with a field `member0`, `member1`, ... per branch that is
 * not null, of which one is set, as Spark's `from_avro` has it. A field that no schema pair can bring together fails only the records
 * that have it: the reader throws a [[Misfit]]. Bytes after the last field are left alone, as Avro's own readers do.
 */
private[headrace] final class AvroResolution(writer: Schema, reader: Schema, columns: StructType, slots: Int) {
  private val data = new GenericData
  private val root: (ByteCursor, DecodedRow) => Unit = {
    val aliased = Schema.applyAliases(writer, reader)
    val action = Resolver.resolve(aliased, reader, data)
    if (reader.getType == Schema.Type.RECORD) {
      action match {
        case record: Resolver.RecordAdjust => fields(record, columns, "")
        case other =>
          val whole = compile(other, reader, columns, "")
          (in, row) => whole.read(in) match {
            case found: InternalRow => columns.fields.indices.foreach(i => row.update(i, found.get(i, columns(i).dataType)))
            case _ => throw new Misfit("the payload is null")
          }
      }
    } else {
      // What is no record has one column, for its value.
      val value = compile(action, reader, columns.head.dataType, columns.head.name)
      (in, row) => value.into(in, row, 0)
    }
  }

  def read(in: ByteCursor): DecodedRow = {
    val row = new DecodedRow(slots)
    try root(in, row) catch { case _: StackOverflowError => throw new Misfit("the payload is nested too deeply") }
    row
  }

  private def compile(action: Resolver.Action, reader: Schema, to: DataType, path: String): ValueReader = action match {
    case error: Resolver.ErrorAction =>
      val where = if (path.isEmpty) "" else s"field `$path`: "
      val reason = s"${where}the schema of the record does not fit the contract's: ${error.toString}"
      new Computed(_ => throw new Misfit(reason))
    case union: Resolver.WriterUnion => writerUnion(union, reader, to, path)
    case union: Resolver.ReaderUnion => branch(union.actualAction, reader, union.firstMatch, to, path)
    case record: Resolver.RecordAdjust =>
      val struct = to.asInstanceOf[StructType]
      val fill = fields(record, struct, path + ".")
      new Computed(in => {
        val row = new DecodedRow(struct.length)
        fill(in, row)
        row
      })
    case container: Resolver.Container if reader.getType == Schema.Type.ARRAY =>
      val ArrayType(element, _) = to: @unchecked
      array(compile(container.elementAction, reader.getElementType, element, path), container.writer.getElementType)
    case container: Resolver.Container =>
      val MapType(_, value, _) = to: @unchecked
      map(compile(container.elementAction, reader.getValueType, value, path))
    case enumeration: Resolver.EnumAdjust => symbols(enumeration, path)
    case other => AvroReaders.scalar(other.writer, reader, to, path)
  }

  /** The fields as the writer has them in order; then the defaults of those that it does not have. */
  private def fields(record: Resolver.RecordAdjust, struct: StructType, prefix: String): (ByteCursor, DecodedRow) => Unit = {
    var matched = 0
    val steps = record.fieldActions.zip(record.writer.getFields.asScala).map { case (action, field) =>
      if (action.isInstanceOf[Resolver.Skip]) (AvroSkip.of(field.schema), -1)
      else {
        val target = record.readerOrder(matched)
        matched += 1
        (compile(action, target.schema, struct(target.pos).dataType, prefix + target.name), target.pos)
      }
    }
    val defaults = record.readerOrder.drop(record.firstDefault).map { field =>
      (field.pos, default(field, struct(field.pos).dataType, prefix + field.name))
    }
    val readers = steps.map(_._1)
    val slots = steps.map(_._2)
    (in, row) => {
      var i = 0
      while (i < readers.length) {
        if (slots(i) < 0) readers(i).read(in) else readers(i).into(in, row, slots(i))
        i += 1
      }
      defaults.foreach { case (slot, value) => if (value != null) row.update(slot, value) }
    }
  }

  /** Written with Avro's own writer, then read as any value is. */
  private def default(field: Schema.Field, to: DataType, path: String): Any = {
    val bytes = new ByteArrayOutputStream
    val encoder = EncoderFactory.get.binaryEncoder(bytes, null)
    new GenericDatumWriter[Any](field.schema, data).write(data.getDefaultValue(field), encoder)
    encoder.flush()
    compile(Resolver.resolve(field.schema, field.schema, data), field.schema, to, path).read(new ByteCursor().over(bytes.toByteArray, 0))
  }

  private def writerUnion(union: Resolver.WriterUnion, reader: Schema, to: DataType, path: String): ValueReader = {
    val branches = union.actions.zipWithIndex.map { case (action, i) =>
      if (union.unionEquiv) branch(action, reader, i, to, path) else compile(action, reader, to, path)
    }
    def chosen(in: ByteCursor): ValueReader = {
      val i = in.readLong()
      if (i < 0 || i >= branches.length) throw new Misfit(s"field `$path`: the payload names branch $i of a union of ${branches.length}")
      branches(i.toInt)
    }
    new ValueReader {
      override def read(in: ByteCursor): Any = chosen(in).read(in)
      override def into(in: ByteCursor, row: DecodedRow, slot: Int): Unit = chosen(in).into(in, row, slot)
    }
  }

  /** A value of one branch of the reader's union. */
  private def branch(action: Resolver.Action, union: Schema, i: Int, to: DataType, path: String): ValueReader = {
    val schema = union.getTypes.get(i)
    if (schema.getType == Schema.Type.NULL) AvroReaders.Nulls
    else if (!AvroUnions.isStruct(union)) compile(action, schema, to, path)
    else {
      val struct = to.asInstanceOf[StructType]
      val member = union.getTypes.asScala.take(i).count(_.getType != Schema.Type.NULL)
      val value = compile(action, schema, struct(member).dataType, s"$path.member$member")
      new Computed(in => {
        val row = new DecodedRow(struct.length)
        value.into(in, row, member)
        row
      })
    }
  }

  private def symbols(action: Resolver.EnumAdjust, path: String): ValueReader = {
    val names = action.writer.getEnumSymbols.asScala.toArray
    val texts = action.values.map(value => if (value == null) null else UTF8String.fromString(value.toString))
    val adjusted = action.adjustments
    new Computed(in => {
      val i = in.readInt()
      if (i < 0 || i >= names.length) throw new Misfit(s"field `$path`: the payload names symbol $i of an enum of ${names.length}")
      if (texts(i) == null || adjusted(i) < 0) throw new Misfit(s"field `$path` is `${names(i)}`, a symbol that the contract does not have")
      texts(i)
    })
  }

  private def array(element: ValueReader, written: Schema): ValueReader = {
    val empty = AvroSkip.leastBytes(written) == 0
    new Computed(in => {
      val values = new ArrayBuffer[Any]
      AvroSkip.blocks(in, empty)(() => values += element.read(in))
      new GenericArrayData(values.toArray[Any])
    })
  }

  /** Of a key that comes twice the last counts. */
  private def map(value: ValueReader): ValueReader = new Computed(in => {
    val entries = new java.util.LinkedHashMap[UTF8String, Any]
    AvroSkip.blocks(in, empty = false) { () =>
      val key = in.readText(in.readLength())
      entries.put(key, value.read(in))
    }
    ArrayBasedMapData(entries.keySet.toArray.asInstanceOf[Array[Any]], entries.values.toArray.asInstanceOf[Array[Any]])
  })
}

private[headrace] object AvroUnions {
  import Schema.Type._

  /** Whether a union has more than one kind of value: whole numbers are one kind, numbers with a fraction another. */
  def isStruct(union: Schema): Boolean = {
    val kinds = union.getTypes.asScala.map(_.getType).filterNot(_ == NULL).toSet
    val plain = union.getTypes.asScala.forall(_.getLogicalType == null)
    !(kinds.size <= 1 && union.getTypes.asScala.count(_.getType != NULL) <= 1 ||
      plain && (kinds == Set(INT, LONG) || kinds == Set(FLOAT, DOUBLE)))
  }
}

/** Reads over what nobody wants. */
private[headrace] object AvroSkip {
  import Schema.Type._

  def of(schema: Schema): ValueReader = skipper(schema, new IdentityHashMap[Schema, ValueReader])

  /** Schemas may contain themselves, hence `made`. */
  private def skipper(schema: Schema, made: IdentityHashMap[Schema, ValueReader]): ValueReader = schema.getType match {
    case NULL => AvroReaders.Nulls
    case BOOLEAN => over(_.skip(1))
    case INT | LONG | ENUM => over(_.readVarint())
    case FLOAT => over(_.skip(4))
    case DOUBLE => over(_.skip(8))
    case STRING | BYTES => over(in => in.skip(in.readLength()))
    case FIXED => over(_.skip(schema.getFixedSize))
    case ARRAY =>
      val element = skipper(schema.getElementType, made)
      val empty = leastBytes(schema.getElementType) == 0
      over(in => blocks(in, empty)(() => element.read(in)))
    case MAP =>
      val value = skipper(schema.getValueType, made)
      over(in => blocks(in, empty = false) { () => in.skip(in.readLength()); value.read(in) })
    case UNION =>
      val branches = schema.getTypes.asScala.map(skipper(_, made)).toArray
      over { in =>
        val i = in.readLong()
        if (i < 0 || i >= branches.length) throw new Misfit(s"the payload names branch $i of a union of ${branches.length}")
        branches(i.toInt).read(in)
      }
    case RECORD if made.containsKey(schema) => over(in => made.get(schema).read(in))
    case RECORD =>
      var fields = Array.empty[ValueReader]
      made.put(schema, over(in => fields.foreach(_.read(in))))
      fields = schema.getFields.asScala.map(f => skipper(f.schema, made)).toArray
      made.get(schema)
  }

  private def over(skip: ByteCursor => Any): ValueReader = new Computed(in => { skip(in); null })

  /** The items of an array or map, in blocks. Items that take no bytes could be claimed without end: they are bounded. */
  def blocks(in: ByteCursor, empty: Boolean)(item: () => Any): Unit = {
    var total = 0L
    var count = in.readLong()
    while (count != 0) {
      if (count < 0) {
        count = -count
        in.readLong() // the block's size in bytes, for those who skip it whole
      }
      total += count
      if (count < 0 || total > MostEmpty && empty || !empty && count > in.remaining) throw new Misfit(s"the payload claims to have $count items, which it can't")
      var i = 0L
      while (i < count) {
        item()
        i += 1
      }
      count = in.readLong()
    }
  }

  private val MostEmpty = 100000L

  /** The least number of bytes that a value takes; only whether it is zero matters. */
  def leastBytes(schema: Schema, within: Set[String] = Set.empty): Int = schema.getType match {
    case NULL => 0
    case FIXED => schema.getFixedSize
    case RECORD if within(schema.getFullName) => 1
    case RECORD => schema.getFields.asScala.map(f => leastBytes(f.schema, within + schema.getFullName)).sum
    case _ => 1
  }
}
