/* SPDX-License-Identifier: GPL-2.0-only */
/* Whether two sets of index entries are the same, found out without sorting them. */
#ifndef INKSTONE_ENTRY_SUM_H
#define INKSTONE_ENTRY_SUM_H

#include "common.h"
#include <array>

/** How many entries there are, and the sum of their digests, whatever their order. */
struct EntrySum
{
  uint64 count= 0;
  uint64 sum= 0;

  void add(ink_slice key, ink_slice value)
  {
    count++;
    sum+= digest(value, digest(key, key.len));
  }
  bool operator==(const EntrySum &other) const { return count == other.count && sum == other.sum; }

private:
  /* FNV-1a (Fowler, Noll, Vo), and the high bits mixed into the low ones. */
  static uint64 digest(ink_slice bytes, uint64 before)
  {
    uint64 hash= before ^ 0xcbf29ce484222325ULL;
    for (size_t i= 0; i < bytes.len; i++)
      hash= (hash ^ bytes.data[i]) * 0x100000001b3ULL;
    return hash ^ hash >> 32;
  }
};

/** Of each index of a table. */
using EntrySums= std::array<EntrySum, MAX_KEY>;

#endif
