/* SPDX-License-Identifier: GPL-2.0-only */
#include "key_codec.h"
#include "row_codec.h"

/* As many weights as there are. */
static const uint ALL_WEIGHTS= UINT_MAX16 * 64;

static const uchar REST_IS_LESS= 1, REST_IS_NOTHING= 2, REST_IS_GREATER= 3;

KeyPartCodec::KeyPartCodec(const KEY_PART_INFO &key_part)
    : part(key_part), field(key_part.field), charset(key_part.field->charset()), kind(FIXED),
      nullable(key_part.null_bit != 0), descending(key_part.key_part_flag & HA_REVERSE_SORT),
      is_signed(false), reversible(true),
      whole(!(key_part.key_part_flag & HA_PART_KEY_SEG) &&
            key_part.length == key_part.field->key_length()),
      pads_with_space(false), space_bytes(0), fixed_bytes(key_part.length)
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

/* Which weights a collation has is asked of the collation itself. */
void KeyPartCodec::choose_text_kind()
{
  kind= TEXT;
  reversible= false;
  pads_with_space= !(charset->state & MY_CS_NOPAD);
  uchar one[64], two[64];
  char blanks[16];
  size_t blank_bytes= charset->mbminlen;
  charset->cset->fill(charset, blanks, 2 * blank_bytes, ' ');
  const uchar *text= reinterpret_cast<const uchar *>(blanks);
  size_t once= charset->coll->strnxfrm(charset, one, sizeof one, ALL_WEIGHTS, text, blank_bytes, 0);
  size_t twice=
      charset->coll->strnxfrm(charset, two, sizeof two, ALL_WEIGHTS, text, 2 * blank_bytes, 0);
  bool uniform= charset->levels_for_order <= 1 && once > 0 && once <= sizeof space &&
                twice == 2 * once && !memcmp(one, two, once) && !memcmp(one, two + once, once);
  if (!uniform || (charset->state & MY_CS_STRNXFRM_BAD_NWEIGHTS))
  {
    kind= LEVELLED;
    uint characters= part.length / charset->mbmaxlen;
    fixed_bytes= charset->coll->strnxfrmlen(charset, (size_t) characters * charset->mbmaxlen);
    return;
  }
  memcpy(space, one, once);
  space_bytes= once;
}

size_t KeyPartCodec::image_bytes_max() const
{
  switch (kind)
  {
  case BYTES:
    return 2 * (size_t) part.length + 2;
  case TEXT:
    return 2 * charset->coll->strnxfrmlen(charset, part.length) + 16;
  default:
    return fixed_bytes + 1;
  }
}

/* A prefix key holds a number of characters, which the server states in bytes of the longest ones. */
size_t KeyPartCodec::prefix_bytes(const uchar *data, size_t length) const
{
  if (charset->mbmaxlen == 1 || kind == BYTES)
    return MY_MIN(length, (size_t) part.length);
  const char *text= reinterpret_cast<const char *>(data);
  size_t position= my_ci_charpos(charset, text, text + length, part.length / charset->mbmaxlen);
  return MY_MIN(length, position);
}

bool KeyPartCodec::put_record(Buffer &out, const uchar *record) const
{
  ColumnValue value= {false, nullptr, fixed_bytes};
  value.null= is_null(record);
  const uchar *at= field->ptr_in_record(record);
  if (value.null)
    return put(out, value);
  value.data= at;
  if (kind == BYTES || kind == TEXT || kind == LEVELLED)
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
  return put(out, value);
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
  else if (kind == TEXT || kind == LEVELLED)
    value.length= part.length;
  if (!value.null && (kind == TEXT || kind == LEVELLED || kind == BYTES))
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
      if (put_text(out, value))
        return true;
      break;
    case LEVELLED: {
      size_t length= value.length;
      if (field->real_type() == MYSQL_TYPE_STRING)
        length= charset->lengthsp(reinterpret_cast<const char *>(value.data), length);
      charset->coll->strnxfrm(charset, out.end(), fixed_bytes,
                              part.length / charset->mbmaxlen * charset->strxfrm_multiply,
                              value.data, length,
                              MY_STRXFRM_PAD_WITH_SPACE | MY_STRXFRM_PAD_TO_MAXLEN);
      out.grow_to(out.end() + fixed_bytes);
      break;
    }
    }
  }
  if (descending)
    for (uchar *byte= out.data() + start; byte < out.end(); byte++)
      *byte= static_cast<uchar>(~*byte);
  return false;
}

bool KeyPartCodec::put_text(Buffer &out, const ColumnValue &value) const
{
  size_t length= value.length;
  if (pads_with_space)
    length= charset->lengthsp(reinterpret_cast<const char *>(value.data), length);
  uchar small[512];
  Buffer large;
  uchar *weights= small;
  size_t room= charset->coll->strnxfrmlen(charset, length) + 16;
  if (room > sizeof small)
  {
    if (large.reserve(room))
      return true;
    weights= large.data();
  }
  size_t count= length ? charset->coll->strnxfrm(charset, weights, room, ALL_WEIGHTS, value.data,
                                                 length, 0)
                       : 0;
  return pads_with_space ? put_padded(out, weights, count) : put_escaped(out, weights, count);
}

bool KeyPartCodec::put_padded(Buffer &out, const uchar *weights, size_t length) const
{
  const size_t unit= space_bytes;
  while (length >= unit && !memcmp(weights + length - unit, space, unit))
    length-= unit;
  if (out.reserve(length + length / unit + 2 * unit + 2))
    return true;
  for (size_t at= 0; at < length; at+= unit)
  {
    size_t count= MY_MIN(unit, length - at);
    memcpy(out.end(), weights + at, count);
    out.grow_to(out.end() + count);
    if (count < unit || memcmp(weights + at, space, unit))
      continue;
    /* Trailing spaces are gone, so something else follows. */
    size_t next= at + unit;
    int order= 0;
    for (; next < length && order == 0; next+= unit)
      order= memcmp(weights + next, space, MY_MIN(unit, length - next));
    out.put(order < 0 ? REST_IS_LESS : REST_IS_GREATER);
  }
  memcpy(out.end(), space, unit);
  out.grow_to(out.end() + unit);
  out.put(REST_IS_NOTHING);
  return false;
}

bool KeyPartCodec::put_escaped(Buffer &out, const uchar *bytes, size_t length) const
{
  if (out.reserve(2 * length + 1))
    return true;
  for (size_t i= 0; i < length; i++)
  {
    if (bytes[i] <= 1)
    {
      out.put(1);
      out.put(static_cast<uchar>(bytes[i] + 1));
    }
    else
      out.put(bytes[i]);
  }
  out.put(0);
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
  if (kind == BYTES || kind == TEXT)
    return skip_variable(at, end);
  return static_cast<size_t>(end - at) < fixed_bytes ? nullptr : at + fixed_bytes;
}

const uchar *KeyPartCodec::skip_variable(const uchar *at, const uchar *end) const
{
  const uchar flip= descending ? 0xff : 0;
  if (kind == BYTES || !pads_with_space)
  {
    while (at < end && (*at ^ flip) != 0)
      at++;
    return at < end ? at + 1 : nullptr;
  }
  const size_t unit= space_bytes;
  for (; at + unit < end; at+= unit)
  {
    size_t same= 0;
    while (same < unit && (at[same] ^ flip) == space[same])
      same++;
    if (same < unit)
      continue;
    if ((at[unit] ^ flip) == REST_IS_NOTHING)
      return at + unit + 1;
    at++;
  }
  return nullptr;
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

void KeyCodec::init(const KEY &key, const KeyCodec *clustered)
{
  clustered_codec= clustered;
  /* Of a unique hash the server itself looks for duplicates. */
  unique= (key.flags & HA_NOSAME) && key.algorithm != HA_KEY_ALG_LONG_HASH;
  nullable= false;
  for (uint i= 0; i < key.user_defined_key_parts; i++)
  {
    key_parts.emplace_back(key.key_part[i]);
    nullable= nullable || key_parts.back().is_nullable();
  }
  if (clustered)
  {
    find_tail();
    find_extras();
  }
}

void KeyCodec::find_tail()
{
  for (const KeyPartCodec &part : clustered_codec->key_parts)
  {
    int source= -1;
    for (size_t i= 0; i < key_parts.size(); i++)
      if (key_parts[i].column() == part.column() && key_parts[i].is_whole() && part.is_whole())
        source= static_cast<int>(i);
    sources.push_back(source);
    if (source < 0)
      tail.push_back(&part);
  }
}

void KeyCodec::find_extras()
{
  std::vector<Field *> reversible;
  for (const KeyPartCodec &part : key_parts)
    if (part.is_reversible())
      reversible.push_back(part.column());
  for (const KeyPartCodec &part : clustered_codec->key_parts)
    if (part.is_reversible())
      reversible.push_back(part.column());
  auto has= [](const std::vector<Field *> &fields, Field *field) {
    for (Field *other : fields)
      if (other == field)
        return true;
    return false;
  };
  auto want= [&](const KeyPartCodec &part) {
    Field *field= part.column();
    if (part.is_whole() && !(field->flags & BLOB_FLAG) && !has(reversible, field) &&
        !has(extras, field))
      extras.push_back(field);
  };
  for (const KeyPartCodec &part : key_parts)
    want(part);
  for (const KeyPartCodec &part : clustered_codec->key_parts)
    want(part);
}

bool KeyCodec::put_record(Buffer &out, const uchar *record, bool *has_null) const
{
  *has_null= false;
  for (const KeyPartCodec &part : key_parts)
  {
    *has_null= *has_null || part.is_null(record);
    if (part.put_record(out, record))
      return true;
  }
  return false;
}

bool KeyCodec::put_key(Buffer &out, const uchar *key, key_part_map map) const
{
  /* The whole key is that of its own parts. */
  if (map == HA_WHOLE_KEY)
    map= make_prev_keypart_map(static_cast<uint>(key_parts.size()));
  for (size_t i= 0; i < key_parts.size() && (map & 1); i++, map>>= 1)
  {
    if (key_parts[i].put_key(out, key))
      return true;
    key+= key_parts[i].key_bytes();
  }
  /* Extended keys: the server goes on with the columns of the primary key. */
  for (size_t i= 0; i < tail.size() && (map & 1); i++, map>>= 1)
  {
    if (tail[i]->put_key(out, key))
      return true;
    key+= tail[i]->key_bytes();
  }
  return false;
}

bool KeyCodec::key_has_null(const uchar *key) const
{
  for (const KeyPartCodec &part : key_parts)
  {
    if (part.is_nullable() && *key)
      return true;
    key+= part.key_bytes();
  }
  return false;
}

bool KeyCodec::put_entry(Buffer &key, Buffer &value, const uchar *record, const Buffer &row_key,
                         bool *is_unique) const
{
  bool has_null;
  key.clear();
  value.clear();
  if (put_record(key, record, &has_null))
    return true;
  *is_unique= unique && !has_null;
  if (*is_unique || hidden_row_id())
  {
    Buffer &home= *is_unique ? value : key;
    if (home.append(row_key.data(), row_key.length()))
      return true;
  }
  else
    for (const KeyPartCodec *part : tail)
      if (part->put_record(key, record))
        return true;
  for (Field *field : extras)
    if (!(field->real_maybe_null() && field->is_null_in_record(record)) &&
        put_packed(value, field, record))
      return true;
  return false;
}

const uchar *KeyCodec::skip_parts(const uchar *at, const uchar *end, const uchar **starts,
                                  bool *has_null) const
{
  *has_null= false;
  for (const KeyPartCodec &part : key_parts)
  {
    bool null;
    if (starts)
      *starts++= at;
    at= part.skip(at, end, &null);
    if (!at)
      return nullptr;
    *has_null= *has_null || null;
  }
  return at;
}

bool KeyCodec::row_key(ink_slice key, ink_slice value, Buffer &scratch, ink_slice *found,
                       size_t *extras_at) const
{
  const uchar *end= key.data + key.len;
  const uchar *starts[MAX_REF_PARTS];
  bool has_null, null;
  *extras_at= 0;
  const uchar *at= skip_parts(key.data, end, starts, &has_null);
  if (!at)
    return false;
  if (unique && !has_null)
  {
    const uchar *value_end= value.data + value.len;
    at= hidden_row_id() ? value.data + ROW_ID_BYTES
                        : clustered_codec->skip_parts(value.data, value_end, nullptr, &null);
    if (!at || at > value_end)
      return false;
    *found= ink_slice{value.data, static_cast<size_t>(at - value.data)};
    *extras_at= found->len;
    return true;
  }
  if (hidden_row_id() || tail.size() == clustered_codec->key_parts.size())
  {
    *found= ink_slice{at, static_cast<size_t>(end - at)};
    return !hidden_row_id() || found->len == ROW_ID_BYTES;
  }
  return gather_row_key(starts, at, end, scratch, found);
}

size_t KeyCodec::part_ends(ink_slice key, size_t (&ends)[2 * MAX_REF_PARTS]) const
{
  const uchar *at= key.data, *end= key.data + key.len;
  size_t count= 0;
  auto note= [&](const KeyPartCodec &part) {
    bool null;
    at= at == end ? nullptr : part.skip(at, end, &null);
    if (at)
      ends[count++]= at - key.data;
    return at != nullptr;
  };
  for (const KeyPartCodec &part : key_parts)
    if (!note(part))
      return count;
  for (const KeyPartCodec *part : tail)
    if (!note(*part))
      return count;
  return count;
}

/* Some columns of the primary key are parts of the index, the others stand behind them. */
bool KeyCodec::gather_row_key(const uchar **starts, const uchar *at, const uchar *end,
                              Buffer &scratch, ink_slice *found) const
{
  scratch.clear();
  for (size_t i= 0; i < sources.size(); i++)
  {
    const KeyPartCodec &part= clustered_codec->key_parts[i];
    const KeyPartCodec *source= sources[i] < 0 ? &part : &key_parts[sources[i]];
    const uchar *from= sources[i] < 0 ? at : starts[sources[i]];
    bool null;
    const uchar *stop= source->skip(from, end, &null);
    if (!stop || scratch.append(from, stop - from))
      return false;
    if (source->is_descending() != part.is_descending())
      for (uchar *byte= scratch.end() - (stop - from); byte < scratch.end(); byte++)
        *byte= static_cast<uchar>(~*byte);
    if (sources[i] < 0)
      at= stop;
  }
  *found= ink_slice{scratch.data(), scratch.length()};
  return true;
}

bool KeyCodec::restore(ink_slice image, uchar *record) const
{
  const uchar *at= image.data, *end= image.data + image.len;
  for (const KeyPartCodec &part : key_parts)
  {
    bool null;
    const uchar *stop= part.skip(at, end, &null);
    if (!stop)
      return false;
    Field *field= part.column();
    if (part.is_nullable())
      set_null_in_record(field, record, null);
    if (!null && part.is_reversible())
      part.restore(at + part.is_nullable(), stop - at - part.is_nullable(), record);
    at= stop;
  }
  return true;
}

bool KeyCodec::restore_entry(ink_slice key, ink_slice value, Buffer &scratch, uchar *record) const
{
  ink_slice clustered;
  size_t extras_at;
  if (!row_key(key, value, scratch, &clustered, &extras_at) || !restore(key, record) ||
      !clustered_codec->restore(clustered, record))
    return false;
  const uchar *at= value.data + extras_at;
  for (Field *field : extras)
  {
    if (field->real_maybe_null() && field->is_null_in_record(record))
      continue;
    if (!(at= get_packed(field, record, at, value.data + value.len)))
      return false;
  }
  return true;
}

bool next_prefix(Buffer &image)
{
  size_t length= image.length();
  while (length && image.data()[length - 1] == 0xff)
    length--;
  image.truncate(length);
  if (!length)
    return false;
  image.data()[length - 1]++;
  return true;
}
