/* SPDX-License-Identifier: GPL-2.0-only */
/* Cutting keys, and scans of cut ones (codec/long_keys.h). */
#include "codec/long_keys.h"
#include <mysql/service_sha2.h>

static const size_t LENGTH_BYTES= 4;

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

bool KeyRoom::tree_key(ink_slice image, Buffer &scratch, ink_slice *key) const
{
  *key= image;
  if (!is_cut(image))
    return false;
  uchar digest[DIGEST_BYTES];
  my_sha256(digest, reinterpret_cast<const char *>(image.data), image.len);
  if (scratch.assign(image.data, whole) || scratch.append(digest, sizeof digest))
    return true;
  *key= slice(scratch);
  return false;
}

bool KeyRoom::put_rest(Buffer &value, ink_slice image) const
{
  if (!is_cut(image))
    return false;
  const size_t rest= image.len - whole, length= value.length();
  if (value.reserve(LENGTH_BYTES + rest))
    return true;
  uchar *begin= value.data();
  if (length)
    memmove(begin + LENGTH_BYTES + rest, begin, length);
  mi_int4store(begin, rest);
  memcpy(begin + LENGTH_BYTES, image.data + whole, rest);
  value.grow_to(begin + LENGTH_BYTES + rest + length);
  return false;
}

bool KeyRoom::cut(Buffer &image, Buffer &value) const
{
  if (!is_cut(slice(image)))
    return false;
  uchar digest[DIGEST_BYTES];
  my_sha256(digest, reinterpret_cast<const char *>(image.data()), image.length());
  if (put_rest(value, slice(image)))
    return true;
  image.truncate(whole);
  return image.append(digest, sizeof digest);
}

bool KeyRoom::take_rest(ink_slice *value, ink_slice *rest)
{
  if (value->len < LENGTH_BYTES)
    return false;
  const size_t length= mi_uint4korr(value->data);
  if (value->len - LENGTH_BYTES < length)
    return false;
  *rest= ink_slice{value->data + LENGTH_BYTES, length};
  *value= ink_slice{rest->data + length, value->len - LENGTH_BYTES - length};
  return true;
}

bool KeyRoom::restore(ink_row *row, Buffer &scratch) const
{
  if (!is_cut(row->key))
    return true;
  ink_slice rest;
  if (!take_rest(&row->value, &rest) || scratch.assign(row->key.data, whole) ||
      scratch.append(rest.data, rest.len))
    return false;
  row->key= slice(scratch);
  return true;
}

bool KeyRoom::tree_range(const ink_range &images, Buffer &high, ink_range *in_tree) const
{
  *in_tree= images;
  if (images.low_bound != INK_UNBOUNDED && is_cut(images.low))
  {
    in_tree->low= head(images.low);
    in_tree->low_bound= INK_INCLUDED;
  }
  if (images.high_bound != INK_UNBOUNDED && is_cut(images.high))
  {
    if (high.assign(images.high.data, whole))
      return true;
    in_tree->high_bound= next_prefix(high) ? INK_EXCLUDED : INK_UNBOUNDED;
    in_tree->high= slice(high);
  }
  return false;
}

bool LongKeyScan::begin(const KeyRoom &key_room, const ink_range &images, bool is_backward, ink_range *in_tree)
{
  clear();
  room= &key_room;
  backward= is_backward;
  low_bound= high_bound= INK_UNBOUNDED;
  if (images.low_bound != INK_UNBOUNDED && room->is_cut(images.low))
  {
    low_bound= images.low_bound;
    if (low.assign(images.low.data, images.low.len))
      return true;
  }
  if (images.high_bound != INK_UNBOUNDED && room->is_cut(images.high))
  {
    high_bound= images.high_bound;
    if (high.assign(images.high.data, images.high.len))
      return true;
  }
  return room->tree_range(images, tree_high, in_tree);
}

void LongKeyScan::clear()
{
  batch.clear();
  rows= nullptr;
  count= at= 0;
  is_current= false;
}

bool LongKeyScan::has(ink_slice key) const
{
  if (low_bound != INK_UNBOUNDED)
  {
    const int order= compare_bytes(key, slice(low));
    if (order < 0 || (!order && low_bound == INK_EXCLUDED))
      return false;
  }
  if (high_bound == INK_UNBOUNDED)
    return true;
  const int order= compare_bytes(key, slice(high));
  return order < 0 || (!order && high_bound == INK_INCLUDED);
}

bool LongKeyScan::start(const ink_row &first)
{
  clear();
  const ink_slice head= room->head(first.key);
  head_bytes= head.len;
  return image.assign(head.data, head.len);
}

bool LongKeyScan::belongs(const ink_row &other) const
{
  return room->is_cut(other.key) && !memcmp(image.data(), other.key.data, head_bytes);
}

/* The image of a row of the head at hand. No data: out of memory. */
ink_slice LongKeyScan::image_of(ink_slice rest)
{
  image.truncate(head_bytes);
  return image.append(rest.data, rest.len) ? ink_slice{nullptr, 0} : slice(image);
}

int LongKeyScan::add(const ink_row &added)
{
  ink_slice value= added.value, rest;
  if (!KeyRoom::take_rest(&value, &rest))
    return HA_ERR_CRASHED;
  const ink_slice key= image_of(rest);
  if (!key.data)
    return HA_ERR_OUT_OF_MEM;
  return has(key) && batch.add(rest, value) ? HA_ERR_OUT_OF_MEM : 0;
}

bool LongKeyScan::sort()
{
  count= batch.count();
  rows= count ? batch.sorted_rows() : nullptr;
  return count && !rows;
}

ink_row *LongKeyScan::next()
{
  if (at == count)
    return nullptr;
  /* The room was made when the row was added. */
  const ink_row &found= rows[backward ? count - 1 - at : at];
  row= ink_row{image_of(found.key), found.value};
  at++;
  is_current= true;
  return &row;
}
