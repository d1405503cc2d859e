/* SPDX-License-Identifier: GPL-2.0-only */
/* Images of keys and entries, made and taken apart (codec/key_codec.h). */
#include "codec/key_codec.h"
#include "codec/row_codec.h"

void KeyCodec::init(const KEY &key, const KeyCodec *clustered, const KeyRoom *room)
{
  clustered_codec= clustered;
  key_room= room;
  /* Of a unique hash the server itself looks for duplicates. */
  unique= (key.flags & HA_NOSAME) && key.algorithm != HA_KEY_ALG_LONG_HASH;
  for (uint i= 0; i < key.user_defined_key_parts; i++)
    key_parts.emplace_back(key.key_part[i]);
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

bool KeyCodec::compare_keys(const uchar *one, const uchar *other, Buffer &image,
                            Buffer &other_image, int *order) const
{
  *order= 0;
  for (const KeyPartCodec &part : key_parts)
  {
    if (memcmp(one, other, part.key_bytes()))
    {
      image.clear();
      other_image.clear();
      if (part.put_key(image, one) || part.put_key(other_image, other))
        return true;
      if ((*order= compare_bytes(slice(image), slice(other_image))))
        return false;
    }
    one+= part.key_bytes();
    other+= part.key_bytes();
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
  return key_room->cut(key, value);
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
  const ink_slice head= key_room->head(key);
  const uchar *at= head.data, *end= head.data + head.len;
  size_t count= 0;
  auto note= [&](const KeyPartCodec &part) {
    bool null;
    if (at == end)
      return false;
    const uchar *next= part.skip(at, end, &null);
    if (!next && key_room->is_cut(key))
      next= end;
    if ((at= next))
      ends[count++]= at - head.data;
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
