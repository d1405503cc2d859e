/* SPDX-License-Identifier: GPL-2.0-only */
/* Values of rows, made and taken apart (codec/row_codec.h). */
#include "codec/row_codec.h"
#include <algorithm>
#include <iterator>

bool put_packed(Buffer &out, Field *field, const uchar *record)
{
  const uchar *from= field->ptr_in_record(record);
  size_t room= field->pack_length() + 4;
  if (field->flags & BLOB_FLAG)
    room+= static_cast<Field_blob *>(field)->get_length(from);
  if (out.reserve(room))
    return true;
  out.grow_to(field->pack(out.end(), from, UINT_MAX32));
  return false;
}

const uchar *get_packed(Field *field, uchar *record, const uchar *at, const uchar *end)
{
  uchar *to= column_in(record, field);
  if (!(field->flags & BLOB_FLAG))
  {
    const uchar *next= field->unpack(to, at, end, 0);
    return next && next <= end ? next : nullptr;
  }
  /* Field_blob::unpack writes to the field's own record, whichever is wanted. */
  const Field_blob *blob= static_cast<const Field_blob *>(field);
  const size_t length_bytes= blob->pack_length_no_ptr();
  if (static_cast<size_t>(end - at) < length_bytes)
    return nullptr;
  const size_t length= blob->get_length(at);
  const uchar *data= at + length_bytes;
  if (static_cast<size_t>(end - data) < length)
    return nullptr;
  memcpy(to, at, length_bytes);
  memcpy(to + length_bytes, &data, sizeof data);
  return data + length;
}

void set_null_in_record(Field *field, uchar *record, bool null)
{
  const TABLE *table= field->table;
  my_ptrdiff_t offset= record - table->record[0];
  if (!null)
  {
    field->set_notnull(offset);
    return;
  }
  field->set_null(offset);
  /* The server compares records: behind a NULL stands the default. */
  memcpy(column_in(record, field), table->s->default_values + (field->ptr - table->record[0]),
         field->pack_length_in_rec());
}

std::vector<Field *> stored_columns(const TABLE *table)
{
  std::vector<Field *> stored;
  for (Field **field= table->field; *field; field++)
    if ((*field)->stored_in_db())
      stored.push_back(*field);
  return stored;
}

static bool is_in_key(const KeyCodec &clustered, const Field *field)
{
  for (const KeyPartCodec &part : clustered.parts())
    if (part.column() == field && part.is_reversible())
      return true;
  return false;
}

/* Shorter ones stay with their row, or leave it with all of it: a part takes whole pages. */
static const size_t PART_BYTES_MIN= 4096;

/* Bytes of the length in front of a column's value, if that may be long enough for a part. */
static uint8 length_of_long(const Field *field)
{
  Packing packing;
  if (field->real_type() == MYSQL_TYPE_STRING || !Packing::of(field, &packing))
    return 0;
  const bool is_blob= (field->flags & BLOB_FLAG) != 0;
  const bool may_be_long= is_blob ? packing.length_bytes > 1 : field->field_length >= PART_BYTES_MIN;
  return may_be_long ? packing.length_bytes : 0;
}

void RowCodec::init(TABLE *form, const KeyCodec &clustered, std::shared_ptr<const RowLayout> of_rows)
{
  const std::vector<Field *> stored= stored_columns(form);
  table= form;
  layout= std::move(of_rows);
  columns.clear();
  places.clear();
  for (const RowPlace &place : layout->places)
  {
    Field *field= place.column == RowPlace::NO_COLUMN ? nullptr : stored[place.column];
    if (!field || !is_in_key(clustered, field))
      places.push_back({&place, field});
  }
  if (layout->is_plain())
    std::copy_if(stored.begin(), stored.end(), std::back_inserter(columns),
                 [&](const Field *field) { return !is_in_key(clustered, field); });
  for (const Place &place : places)
    if (place.field)
      columns.push_back(place.field);
  fixed_bytes= 5;
  nullable_count= 0;
  lengths_of_long.clear();
  has_long= false;
  for (const Field *field : columns)
  {
    lengths_of_long.push_back(length_of_long(field));
    has_long= has_long || lengths_of_long.back();
    nullable_count+= field->real_maybe_null();
    fixed_bytes+= field->pack_length() + 4;
  }
  fixed_bytes+= (nullable_count + 7) / 8;
}

bool RowCodec::put(Buffer &out, Buffer &parts, const uchar *record) const
{
  out.clear();
  parts.clear();
  if (out.reserve(fixed_bytes))
    return true;
  size_t count= place_count();
  for (; count >= 0x80; count>>= 7)
    out.put(static_cast<uchar>(count | 0x80));
  out.put(static_cast<uchar>(count));
  const size_t nulls_at= out.length(), bitmap_bytes= (nullable_count + 7) / 8;
  memset(out.end(), 0, bitmap_bytes);
  out.grow_to(out.end() + bitmap_bytes);
  size_t bit= 0;
  for (size_t i= 0; i < columns.size(); i++)
  {
    Field *field= columns[i];
    if (field->real_maybe_null())
    {
      bool null= field->is_null_in_record(record);
      if (null)
        out.data()[nulls_at + bit / 8]|= static_cast<uchar>(1 << bit % 8);
      bit++;
      if (null)
        continue;
    }
    const size_t at= out.length() + lengths_of_long[i];
    if (put_packed(out, field, record))
      return true;
    if (!lengths_of_long[i] || out.length() - at < PART_BYTES_MIN)
      continue;
    const ink_part part= {at, out.length() - at};
    if (parts.append(reinterpret_cast<const uchar *>(&part), sizeof part))
      return true;
  }
  return false;
}

/* Takes columns out of a value, one after the other, of which parts may lie outside. */
class RowCodec::Reader
{
public:
  /** `parts`: nullptr, if it is whole. `offset`: where `start` lies in the value. */
  Reader(const uchar *start, const uchar *limit, size_t offset, OutsideParts *parts)
      : at(start), end(limit), begin(start), passed(offset), outside(parts), next(0)
  {
  }

  /** The bytes of the bitmap of NULLs; nullptr: there are not so many. */
  const uchar *take_bytes(size_t count)
  {
    if (static_cast<size_t>(end - at) < count)
      return nullptr;
    at+= count;
    return at - count;
  }

  /** A column, of which `length_bytes` may be in front of a part. False: damaged, or it could not
      be fetched. */
  bool take(Field *field, uint8 length_bytes, bool is_wanted, uchar *record)
  {
    if (is_part(offset() + length_bytes))
      return length_bytes && take_outside(field, length_bytes, is_wanted, record);
    at= get_packed(field, record, at, end);
    /* No part begins within another column. */
    return at && (!outside || next == outside->count() || (*outside)[next].at > offset());
  }

private:
  /** Which byte of the whole value comes next. */
  size_t offset() const { return passed + static_cast<size_t>(at - begin); }
  bool is_part(size_t place) const { return outside && next < outside->count() && (*outside)[next].at == place; }

  bool take_outside(Field *field, uint8 length_bytes, bool is_wanted, uchar *record)
  {
    const uchar *length_at= take_bytes(length_bytes);
    size_t length= 0;
    for (uint i= 0; length_at && i < length_bytes; i++)
      length|= static_cast<size_t>(length_at[i]) << 8 * i;
    const size_t part= next++;
    const bool is_blob= (field->flags & BLOB_FLAG) != 0;
    if (!length_at || length != (*outside)[part].len || (!is_blob && length > field->field_length))
      return false;
    passed+= length;
    uchar *to= column_in(record, field);
    const uchar *data= is_wanted ? outside->fetch(part) : nullptr;
    if (is_wanted && !data)
      return false;
    if (is_blob && !is_wanted)
      memset(to, 0, length_bytes);
    else if (is_wanted)
      memcpy(to, length_at, length_bytes);
    if (is_blob)
      memcpy(to + length_bytes, &data, sizeof data);
    else if (is_wanted)
      memcpy(to + length_bytes, data, length);
    return true;
  }

  const uchar *at, *end, *begin;
  size_t passed;
  OutsideParts *outside;
  size_t next;
};

/* How many places a row was written with. */
bool RowCodec::take_count(const uchar **at, const uchar *end, size_t *count) const
{
  *count= 0;
  for (uint shift= 0;; shift+= 7)
  {
    if (*at == end || shift > 14)
      return false;
    *count|= static_cast<size_t>(**at & 0x7f) << shift;
    if (!(*(*at)++ & 0x80))
      return true;
  }
}

bool RowCodec::get(ink_slice value, const MY_BITMAP *wanted, uchar *record) const
{
  const uchar *at= value.data, *end= value.data + value.len;
  size_t count;
  if (!take_count(&at, end, &count))
    return false;
  if (count == place_count())
  {
    Reader from(at, end, 0, nullptr);
    return get_current(from, wanted, record);
  }
  return count < places.size() && get_older(count, at, end, record);
}

/* A row that was written before the table was altered has its columns otherwise, and one that lies
   outside as a whole has nothing here: they are read whole. */
bool RowCodec::get(ink_slice inline_bytes, OutsideParts &outside, const MY_BITMAP *wanted, uchar *record) const
{
  if (!outside.count())
    return get(inline_bytes, wanted, record);
  const uchar *at= inline_bytes.data, *end= inline_bytes.data + inline_bytes.len;
  size_t count;
  if (outside[0].at && take_count(&at, end, &count) && count == place_count())
  {
    Reader from(at, end, static_cast<size_t>(at - inline_bytes.data), &outside);
    return get_current(from, wanted, record);
  }
  ink_slice whole;
  return outside.put_together(inline_bytes, &whole) && get(whole, wanted, record);
}

bool RowCodec::get_current(Reader &from, const MY_BITMAP *wanted, uchar *record) const
{
  const uchar *nulls= from.take_bytes((nullable_count + 7) / 8);
  if (!nulls)
    return false;
  size_t stop= columns.size();
  if (wanted)
    while (stop && !bitmap_is_set(wanted, columns[stop - 1]->field_index))
      stop--;
  size_t bit= 0;
  for (size_t i= 0; i < stop; i++)
  {
    Field *field= columns[i];
    if (field->real_maybe_null())
    {
      bool null= nulls[bit / 8] >> bit % 8 & 1;
      bit++;
      set_null_in_record(field, record, null);
      if (null)
        continue;
    }
    const bool is_wanted= !wanted || bitmap_is_set(wanted, field->field_index);
    if (!from.take(field, lengths_of_long[i], is_wanted, record))
      return false;
  }
  return true;
}

/* Whether rows of so many places have a value there that may be NULL. */
static bool is_nullable_in(const RowPlace &place, const Field *field, size_t count)
{
  const Packing *packing= place.packing_in(count);
  return packing ? packing->is_nullable : field && field->real_maybe_null();
}

size_t RowCodec::null_bytes(size_t count) const
{
  size_t bits= 0;
  for (size_t i= 0; i < count; i++)
    bits+= is_nullable_in(*places[i].of_layout, places[i].field, count);
  return (bits + 7) / 8;
}

/* A text whose length is of other bytes than the column's is now. */
static bool put_text(Field *field, uchar *record, const uchar *value, size_t length)
{
  uchar *to= column_in(record, field);
  if (field->real_type() == MYSQL_TYPE_STRING && length <= field->pack_length())
  {
    memcpy(to, value, length);
    field->charset()->fill(reinterpret_cast<char *>(to) + length, field->pack_length() - length,
                           field->charset()->pad_char);
    return true;
  }
  if (field->real_type() != MYSQL_TYPE_VARCHAR || length > field->field_length)
    return false;
  const uint length_bytes= static_cast<const Field_varstring *>(field)->length_bytes;
  if (length_bytes == 1)
    *to= static_cast<uchar>(length);
  else
    int2store(to, static_cast<uint16>(length));
  memcpy(to + length_bytes, value, length);
  return true;
}

/* One value out of a row of so many places. Where it ends. */
static const uchar *get_old_value(const RowPlace &place, Field *field, size_t count, uchar *record, const uchar *at,
                                  const uchar *end)
{
  const Packing *packing= place.packing_in(count);
  Packing now;
  if (!packing || (field && Packing::of(field, &now) && packing->is_sized_as(now)))
    return get_packed(field, record, at, end);
  const uchar *value;
  size_t length;
  const uchar *next= packing->take(at, end, &value, &length);
  return next && (!field || put_text(field, record, value, length)) ? next : nullptr;
}

bool RowCodec::get_older(size_t count, const uchar *at, const uchar *end, uchar *record) const
{
  const size_t bitmap_bytes= null_bytes(count);
  const uchar *nulls= at;
  if (static_cast<size_t>(end - at) < bitmap_bytes)
    return false;
  at+= bitmap_bytes;
  size_t bit= 0;
  for (size_t i= 0; i < count; i++)
  {
    const RowPlace &place= *places[i].of_layout;
    Field *field= places[i].field;
    if (!field && !place.packing_in(count))
      continue;
    const bool is_nullable= is_nullable_in(place, field, count);
    const bool null= is_nullable && (nulls[bit / 8] >> bit % 8 & 1);
    bit+= is_nullable;
    if (field && field->real_maybe_null())
      set_null_in_record(field, record, null);
    else if (field && null)
      return false;
    if (!null && !(at= get_old_value(place, field, count, record, at, end)))
      return false;
  }
  for (size_t i= count; i < places.size(); i++)
    if (places[i].field && !get_added(places[i], i, record))
      return false;
  return true;
}

/* What a column that was added behind the row holds in it: packed as in the rows that were written
   first with it. */
bool RowCodec::get_added(const Place &place, size_t number, uchar *record) const
{
  const AddedColumn &added= place.of_layout->added;
  Field *field= place.field;
  if (!place.of_layout->is_added || (added.null && !field->real_maybe_null()))
    return false;
  if (field->real_maybe_null())
    set_null_in_record(field, record, added.null);
  return added.null || get_old_value(*place.of_layout, field, number + 1, record, added.packed.data(),
                                     added.packed.data() + added.packed.size()) != nullptr;
}
