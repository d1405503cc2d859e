/* SPDX-License-Identifier: GPL-2.0-only */
/* From the server's keys and ways to search to ranges of images. */
#include "handler/search.h"

bool Search::take_key(const KeyCodec &codec, const uchar *key, key_part_map map)
{
  low.clear();
  return codec.put_key(low, key, map);
}

void Search::find_all()
{
  range= {NO_KEY, NO_KEY, INK_UNBOUNDED, INK_UNBOUNDED};
  backward= is_bounded= false;
}

int Search::find(enum ha_rkey_function how)
{
  find_all();
  if (high.assign(low.data(), low.length()))
    return HA_ERR_OUT_OF_MEM;
  const uint32_t behind= next_prefix(high) ? INK_EXCLUDED : INK_UNBOUNDED;
  switch (how)
  {
  case HA_READ_KEY_EXACT:
    is_bounded= behind == INK_EXCLUDED;
    range= {slice(low), slice(high), INK_INCLUDED, behind};
    return 0;
  case HA_READ_AFTER_KEY:
    if (behind == INK_UNBOUNDED)
      return HA_ERR_KEY_NOT_FOUND;
    /* The bound moves to where the range begins. */
    if (low.assign(high.data(), high.length()))
      return HA_ERR_OUT_OF_MEM;
    /* fall through */
  case HA_READ_KEY_OR_NEXT:
    range.low= slice(low);
    range.low_bound= INK_INCLUDED;
    return 0;
  case HA_READ_BEFORE_KEY:
    backward= true;
    range.high= slice(low);
    range.high_bound= INK_EXCLUDED;
    return 0;
  case HA_READ_KEY_OR_PREV:
  case HA_READ_PREFIX_LAST_OR_PREV:
    backward= true;
    range.high= slice(high);
    range.high_bound= behind;
    return 0;
  case HA_READ_PREFIX_LAST:
    backward= true;
    range= {slice(low), slice(high), INK_INCLUDED, behind};
    return 0;
  default: /* searches in spatial indexes, which there are none of */
    return HA_ERR_UNSUPPORTED;
  }
}

bool Search::end_at(const KeyCodec &codec, const key_range *end)
{
  high.clear();
  range.high_bound= INK_UNBOUNDED;
  if (end && codec.put_key(high, end->key, end->keypart_map))
    return true;
  if (end && (end->flag == HA_READ_BEFORE_KEY || next_prefix(high)))
    range.high_bound= INK_EXCLUDED;
  range.high= slice(high);
  return false;
}

bool Search::between(const KeyCodec &codec, const key_range *min, const key_range *max, bool *no_memory)
{
  find_all();
  *no_memory= (min && take_key(codec, min->key, min->keypart_map)) || end_at(codec, max);
  if (*no_memory)
    return false;
  if (!min)
    return true;
  if (min->flag == HA_READ_AFTER_KEY && !next_prefix(low))
    return false;
  range.low= slice(low);
  range.low_bound= INK_INCLUDED;
  return true;
}
