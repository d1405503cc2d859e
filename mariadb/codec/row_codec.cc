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
  for (const Field *field : columns)
  {
    nullable_count+= field->real_maybe_null();
    fixed_bytes+= field->pack_length() + 4;
  }
  fixed_bytes+= (nullable_count + 7) / 8;
}

bool RowCodec::put(Buffer &out, const uchar *record) const
{
  out.clear();
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
  for (Field *field : columns)
  {
    if (field->real_maybe_null())
    {
      bool null= field->is_null_in_record(record);
      if (null)
        out.data()[nulls_at + bit / 8]|= static_cast<uchar>(1 << bit % 8);
      bit++;
      if (null)
        continue;
    }
    if (put_packed(out, field, record))
      return true;
  }
  return false;
}

bool RowCodec::get(ink_slice value, const MY_BITMAP *wanted, uchar *record) const
{
  const uchar *at= value.data, *end= value.data + value.len;
  size_t count= 0;
  for (uint shift= 0;; shift+= 7)
  {
    if (at == end || shift > 14)
      return false;
    count|= static_cast<size_t>(*at & 0x7f) << shift;
    if (!(*at++ & 0x80))
      break;
  }
  if (count == place_count())
    return get_current(at, end, wanted, record);
  return count < places.size() && get_older(count, at, end, record);
}

bool RowCodec::get_current(const uchar *at, const uchar *end, const MY_BITMAP *wanted, uchar *record) const
{
  const size_t bitmap_bytes= (nullable_count + 7) / 8;
  const uchar *nulls= at;
  if (static_cast<size_t>(end - at) < bitmap_bytes)
    return false;
  at+= bitmap_bytes;
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
    if (!(at= get_packed(field, record, at, end)))
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
