/* SPDX-License-Identifier: GPL-2.0-only */
/* Rows that are read before they are looked up (handler/lookup_ahead.h). */
#include "handler/lookup_ahead.h"
#include <algorithm>

/** Fewer entries are looked up one by one. */
static const size_t ENTRIES_MIN= 4;
/** At most as many batches are passed between two tries. */
static const uint PASSED_MAX= 64;
/** Where fewer than one page for so many rows was missing, the next batches are passed. */
static const size_t ROWS_FOR_A_PAGE= 16;

bool LookupAhead::is_due(size_t entries)
{
  if (entries < ENTRIES_MIN)
    return false;
  if (!to_pass)
    return true;
  to_pass--;
  return false;
}

void LookupAhead::begin()
{
  bytes.clear();
  ends.clear();
}

/* Of an entry that is cut the row's key may be, too; one that is damaged is so when it is
   delivered. */
bool LookupAhead::add(const KeyCodec &index, const KeyRoom &room, const ink_row &entry)
{
  ink_slice image, key;
  size_t extras_at;
  if (room.is_cut(entry.key) || !index.row_key(entry.key, entry.value, scratch, &image, &extras_at))
    return false;
  if (room.tree_key(image, cut_key, &key) || bytes.append(key.data, key.len))
    return true;
  ends.push_back(bytes.length());
  return false;
}

void LookupAhead::read(const ink_transaction *transaction, const ink_tree *tree)
{
  size_t start= 0, pages= 0;
  keys.clear();
  for (size_t end : ends)
  {
    keys.push_back({bytes.data() + start, end - start});
    start= end;
  }
  ink_prefetch(transaction, tree, keys.data(), keys.size(), &pages, nullptr);
  passed= pages * ROWS_FOR_A_PAGE >= keys.size() ? 0 : std::min(2 * passed + 1, PASSED_MAX);
  to_pass= passed;
}
