/* SPDX-License-Identifier: GPL-2.0-only */
/* Keys and values for one tree, one behind the other, in the order in which they were added. */
#ifndef INKSTONE_BATCH_H
#define INKSTONE_BATCH_H

#include "codec/buffer.h"

class Batch
{
public:
  /** True: out of memory. */
  bool add(ink_slice key, ink_slice value);
  /** The rows, as they were added or by key; valid until the next call. nullptr: out of memory. */
  ink_row *rows();
  ink_row *sorted_rows();
  /** As which one such a row was added, from 0 on. */
  size_t number_of(const ink_row &row) const;
  size_t count() const { return places.length() / sizeof(Place); }
  /** Bytes of keys and values. */
  size_t length() const { return bytes.length(); }
  void clear();

private:
  struct Place
  {
    size_t key, value, end;
  };
  Buffer bytes, places, found;
};

#endif
