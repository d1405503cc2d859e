/* SPDX-License-Identifier: GPL-2.0-only */
/* What the server searches an index for, as a range of images of its keys. */
#ifndef INKSTONE_SEARCH_H
#define INKSTONE_SEARCH_H

#include "codec/key_codec.h"

/** A place that is no key's. */
static const ink_slice NO_KEY= {nullptr, 0};

class Search
{
public:
  Search() : range(), backward(false), is_bounded(false) {}

  /** Takes the parts in `map` of a key in the server's format. True: out of memory. */
  bool take_key(const KeyCodec &codec, const uchar *key, key_part_map map);
  /** The range of the rows that are to be found by the key that was taken. 0 or a handler's error;
      HA_ERR_KEY_NOT_FOUND: there can be none. */
  int find(enum ha_rkey_function how);
  /** The range of all keys. */
  void find_all();
  /** The range ends where the server's does, nullptr: nowhere. True: out of memory. */
  bool end_at(const KeyCodec &codec, const key_range *end);
  /** The range between two keys of the server's, each of which may be nullptr. False: there is
      none. `*no_memory`: why. */
  bool between(const KeyCodec &codec, const key_range *min, const key_range *max, bool *no_memory);

  /** Lies in low and high. */
  ink_range range;
  bool backward;
  /** Whether it ends where the keys that were asked for do, and more may follow. */
  bool is_bounded;
  Buffer low, high;
};

#endif
