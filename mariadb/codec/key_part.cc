/* SPDX-License-Identifier: GPL-2.0-only */
/* Images of the parts of keys, by type of column (codec/key_codec.h). */
#include "codec/key_codec.h"
#include "codec/row_codec.h"
#include <new>

KeyPartCodec::KeyPartCodec(const KEY_PART_INFO &key_part)
    : part(key_part), field(key_part.field), charset(key_part.field->charset()), kind(FIXED),
      nullable(key_part.null_bit != 0), descending(key_part.key_part_flag & HA_REVERSE_SORT),
      is_signed(false), reversible(true),
      whole(!(key_part.key_part_flag & HA_PART_KEY_SEG) &&
            key_part.length == key_part.field->key_length()),
      order(nullptr), fixed_bytes(key_part.length)
{
  switch (field->real_type())
  {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
    kind= INTEGER;
    is_signed= !(field->flags & UNSIGNED_FLAG);
    break;
  case MYSQL_TYPE_YEAR:
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_SET:
  case MYSQL_TYPE_NEWDATE:
    kind= INTEGER;
    break;
  case MYSQL_TYPE_FLOAT:
  case MYSQL_TYPE_DOUBLE:
  /* Temporals of the formats before MariaDB 10.1 and of decimals before 5.0. */
  case MYSQL_TYPE_DATE:
  case MYSQL_TYPE_TIME:
  case MYSQL_TYPE_DATETIME:
  case MYSQL_TYPE_TIMESTAMP:
  case MYSQL_TYPE_DECIMAL:
    kind= SORTABLE;
    reversible= false;
    break;
  case MYSQL_TYPE_STRING:
    /* UUID and INET are "strings" of fixed length whose bytes compare. */
    if (field->type_handler()->field_type() != MYSQL_TYPE_STRING || charset == &my_charset_bin ||
        field->type_handler() != &type_handler_string)
      kind= FIXED;
    else
      choose_text_kind();
    break;
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_VARCHAR_COMPRESSED:
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_BLOB_COMPRESSED:
  case MYSQL_TYPE_GEOMETRY:
    if (charset == &my_charset_bin)
    {
      kind= BYTES;
      reversible= field->real_type() == MYSQL_TYPE_VARCHAR;
    }
    else
      choose_text_kind();
    break;
  default: /* NEWDECIMAL, BIT, TIMESTAMP2, DATETIME2, TIME2 */
    kind= FIXED;
    break;
  }
  reversible= reversible && whole;
}

void KeyPartCodec::choose_text_kind()
{
  kind= TEXT;
  reversible= false;
  if (!(order= TextOrder::of(charset, field->real_type() == MYSQL_TYPE_STRING)))
    throw std::bad_alloc();
}

/* A prefix key holds a number of characters, which the server states in bytes of the longest
   ones. */
size_t KeyPartCodec::prefix_bytes(const uchar *data, size_t length) const
{
  const size_t bytes= MY_MIN(length, (size_t) part.length);
  if (charset->mbmaxlen == 1 || kind == BYTES)
    return bytes;
  const char *text= reinterpret_cast<const char *>(data);
  size_t position= my_ci_charpos(charset, text, text + length, part.length / charset->mbmaxlen);
  return MY_MIN(bytes, position);
}

bool KeyPartCodec::put_record(Buffer &out, const uchar *record) const
{
  return put(out, value_in(record));
}

ColumnValue KeyPartCodec::value_in(const uchar *record) const
{
  ColumnValue value= {false, nullptr, fixed_bytes};
  value.null= is_null(record);
  const uchar *at= field->ptr_in_record(record);
  if (value.null)
    return value;
  value.data= at;
  if (kind == BYTES || kind == TEXT)
  {
    if (field->flags & BLOB_FLAG)
    {
      Field_blob *blob= static_cast<Field_blob *>(field);
      value.length= blob->get_length(at);
      memcpy(&value.data, at + blob->pack_length_no_ptr(), sizeof value.data);
    }
    else if (field->real_type() == MYSQL_TYPE_VARCHAR)
    {
      uint length_bytes= static_cast<Field_varstring *>(field)->length_bytes;
      value.length= length_bytes == 1 ? *at : uint2korr(at);
      value.data= at + length_bytes;
    }
    else
      value.length= field->pack_length();
    value.length= prefix_bytes(value.data, value.length);
  }
  return value;
}

bool KeyPartCodec::put_key(Buffer &out, const uchar *key) const
{
  ColumnValue value= {false, nullptr, fixed_bytes};
  if (nullable)
    value.null= *key++ != 0;
  value.data= key;
  if (part.key_part_flag & (HA_VAR_LENGTH_PART | HA_BLOB_PART))
  {
    value.length= uint2korr(key);
    value.data= key + HA_KEY_BLOB_LENGTH;
  }
  else if (kind == TEXT)
    value.length= part.length;
  if (!value.null && (kind == TEXT || kind == BYTES))
    value.length= prefix_bytes(value.data, value.length);
  return put(out, value);
}

bool KeyPartCodec::put(Buffer &out, const ColumnValue &value) const
{
  size_t start= out.length();
  if (out.reserve(fixed_bytes + 1))
    return true;
  if (nullable)
    out.put(value.null ? 0 : 1);
  if (!value.null)
  {
    switch (kind)
    {
    case INTEGER: {
      uchar *to= out.end();
      for (size_t i= 0; i < fixed_bytes; i++)
        to[i]= value.data[fixed_bytes - 1 - i];
      if (is_signed)
        to[0]^= 0x80;
      out.grow_to(to + fixed_bytes);
      break;
    }
    case FIXED:
      if (out.append(value.data, fixed_bytes))
        return true;
      break;
    case SORTABLE: {
      /* sort_string reads the field where it points to. */
      uchar *there= field->ptr;
      field->ptr= const_cast<uchar *>(value.data);
      field->sort_string(out.end(), static_cast<uint>(fixed_bytes));
      field->ptr= there;
      out.grow_to(out.end() + fixed_bytes);
      break;
    }
    case BYTES:
      if (put_escaped(out, value.data, value.length))
        return true;
      break;
    case TEXT:
      if (order->put(out, value.data, value.length))
        return true;
      break;
    }
  }
  if (descending)
    for (uchar *byte= out.data() + start; byte < out.end(); byte++)
      *byte= static_cast<uchar>(~*byte);
  return false;
}

const uchar *KeyPartCodec::skip(const uchar *at, const uchar *end, bool *null) const
{
  const uchar flip= descending ? 0xff : 0;
  *null= false;
  if (nullable)
  {
    if (at >= end)
      return nullptr;
    *null= (*at++ ^ flip) == 0;
    if (*null)
      return at;
  }
  if (kind == BYTES)
    return skip_escaped(at, end, flip);
  if (kind == TEXT)
    return order->skip(at, end, flip);
  return static_cast<size_t>(end - at) < fixed_bytes ? nullptr : at + fixed_bytes;
}

void KeyPartCodec::restore(const uchar *image, size_t length, uchar *record) const
{
  const uchar flip= descending ? 0xff : 0;
  uchar *to= column_in(record, field);
  if (kind == INTEGER)
  {
    for (size_t i= 0; i < fixed_bytes; i++)
      to[fixed_bytes - 1 - i]= image[i] ^ flip;
    if (is_signed)
      to[fixed_bytes - 1]^= 0x80;
    return;
  }
  if (kind == FIXED)
  {
    for (size_t i= 0; i < fixed_bytes; i++)
      to[i]= image[i] ^ flip;
    return;
  }
  /* VARBINARY: the escapes come out, the end is left. */
  uint length_bytes= static_cast<Field_varstring *>(field)->length_bytes;
  uchar *data= to + length_bytes;
  size_t count= 0;
  for (size_t i= 0; i + 1 < length && count < field->field_length; i++)
  {
    uchar byte= image[i] ^ flip;
    if (byte == 1 && i + 2 < length)
      byte= static_cast<uchar>((image[++i] ^ flip) - 1);
    data[count++]= byte;
  }
  if (length_bytes == 1)
    *to= static_cast<uchar>(count);
  else
    int2store(to, count);
}
