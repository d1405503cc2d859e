/* SPDX-License-Identifier: GPL-2.0-only */
/* The rows of the entries that a scan of an index has fetched: their pages are read together, where
   they are not in memory.

   Where they are, finding that out is wasted: it is tried again after 1, 3, 7, .. 64 batches. */
#ifndef INKSTONE_LOOKUP_AHEAD_H
#define INKSTONE_LOOKUP_AHEAD_H

#include "codec/key_codec.h"
#include "codec/long_keys.h"
#include "server/engine.h"
#include <vector>

class LookupAhead
{
public:
  LookupAhead() : to_pass(0), passed(0) {}

  /** Whether a batch of so many entries is worth a try. */
  bool is_due(size_t entries);
  /** Begins a batch. */
  void begin();
  /** Adds the key of an entry's row. True: out of memory. */
  bool add(const KeyCodec &index, const KeyRoom &room, const ink_row &entry);
  /** Reads the pages of the rows that were added. What fails is read again when it is wanted. */
  void read(const ink_transaction *transaction, const ink_tree *tree);

private:
  /** Batches to pass before the next try, and as many as were passed before the last one. */
  uint to_pass, passed;
  /** The keys, one behind the other; an image and a key that are made. */
  Buffer bytes, scratch, cut_key;
  std::vector<size_t> ends;
  std::vector<ink_slice> keys;
};

#endif
