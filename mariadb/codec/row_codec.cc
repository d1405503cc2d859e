/* SPDX-License-Identifier: GPL-2.0-only */
/* Values of rows, made and taken apart (codec/row_codec.h). */
#include "codec/row_codec.h"

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

void RowCodec::init(TABLE *form, const KeyCodec &clustered, const std::vector<uint16> &order)
{
  const std::vector<Field *> stored= stored_columns(form);
  table= form;
  fixed_bytes= 5;
  nullable_count= 0;
  columns.clear();
  for (size_t i= 0; i < stored.size(); i++)
  {
    Field *field= stored[order.empty() ? i : order[i]];
    bool in_key= false;
    for (const KeyPartCodec &part : clustered.parts())
      in_key= in_key || (part.column() == field && part.is_reversible());
    if (in_key)
      continue;
    columns.push_back(field);
    nullable_count+= field->real_maybe_null();
    fixed_bytes+= field->pack_length() + 4;
  }
  fixed_bytes+= (nullable_count + 7) / 8;
}

size_t RowCodec::null_bytes(size_t count) const
{
  size_t bits= 0;
  for (size_t i= 0; i < count; i++)
    bits+= columns[i]->real_maybe_null();
  return (bits + 7) / 8;
}

bool RowCodec::put(Buffer &out, const uchar *record) const
{
  out.clear();
  if (out.reserve(fixed_bytes))
    return true;
  size_t count= columns.size();
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

bool RowCodec::get(ink_slice value, const std::vector<AddedColumn> &added, const MY_BITMAP *wanted,
                   uchar *record) const
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
  if (count > columns.size() || columns.size() - count > added.size())
    return false;
  size_t bitmap_bytes=
      count == columns.size() ? (nullable_count + 7) / 8 : null_bytes(count);
  const uchar *nulls= at;
  if (static_cast<size_t>(end - at) < bitmap_bytes)
    return false;
  at+= bitmap_bytes;

  size_t stop= columns.size();
  if (wanted)
    while (stop && !bitmap_is_set(wanted, columns[stop - 1]->field_index))
      stop--;
  size_t bit= 0;
  for (size_t i= 0; i < stop && i < count; i++)
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
  for (size_t i= count; i < stop; i++)
    if (!get_column(columns[i], added[added.size() - (columns.size() - i)], record))
      return false;
  return true;
}

bool RowCodec::get_column(Field *field, const AddedColumn &added, uchar *record) const
{
  if (field->real_maybe_null())
    set_null_in_record(field, record, added.null);
  return added.null || get_packed(field, record, added.packed.data(),
                                  added.packed.data() + added.packed.size()) != nullptr;
}
