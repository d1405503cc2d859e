/* SPDX-License-Identifier: GPL-2.0-only */
/* A scan's cursor: where it stands in its tree, and the rows that it fetches.

   Keys and bounds are images here. The tree has some of them cut: seek and fetch see to it
   (long_keys.h).

   An UPDATE at read committed reads semi-consistently, as with InnoDB: of a row that another
   session has locked it gets what was committed last, and no lock. If that is not wanted
   (unlock_row), nothing has waited; else the server reads on, and gets the row again, newest and
   locked. */
#include "handler/ha_inkstone.h"

static const ink_slice NOTHING= {nullptr, 0};

void ha_inkstone::close_cursor()
{
  ink_cursor_close(cursor);
  cursor= nullptr;
  cursor_tree= nullptr;
  scanning= shown_unlocked= false;
  row_at= row_count= 0;
  long_keys.clear();
}

/* The memory that the current key lies in will be used again: a copy is kept, in case the scan
   changes its direction. True: out of memory. */
bool ha_inkstone::keep_current()
{
  if (!current.data || current.data == saved_key.data())
    return false;
  const bool no_memory= saved_key.assign(current.data, current.len);
  current= no_memory ? NOTHING : slice(saved_key);
  return no_memory;
}

/* The transaction ends; the place in the scan is kept. */
void ha_inkstone::suspend()
{
  keep_current();
  close_cursor();
}

/* Keeps where a scan ends, should HANDLER turn round there: then it stands between the rows on both
   sides. */
bool ha_inkstone::keep_edge(const ink_range &range, bool backward)
{
  const ink_slice end= backward ? range.low : range.high;
  at_edge= false;
  if (thd_sql_command(thd()) != SQLCOM_HA_READ)
    return false;
  edge_bound= backward ? range.low_bound : range.high_bound;
  /* The bound may be the edge itself. */
  return end.data != edge.data() && edge.assign(end.data, end.len);
}

int ha_inkstone::seek(const ink_range &range, bool backward)
{
  ink_error error;
  const ink_tree *tree= active_tree();
  const bool shows_unlocked= semi_consistent && wait == INK_WAIT && tree == share->clustered() &&
                             thd_tx_isolation(ha_thd()) <= ISO_READ_COMMITTED;
  const ink_scan scan= {backward, lock, wait, shows_unlocked};
  ink_range in_tree;
  int failed;
  if (keep_edge(range, backward) || long_keys.begin(share->key_room(), range, backward, &in_tree))
    return HA_ERR_OUT_OF_MEM;
  if (cursor && cursor_tree == tree)
    failed= ink_cursor_seek(cursor, &in_tree, &scan, &error);
  else
  {
    close_cursor();
    failed= ink_cursor_open(transaction(), tree, &in_tree, &scan, &cursor, &error);
    if (failed)
      cursor= nullptr;
  }
  row_at= row_count= 0;
  shown_unlocked= false;
  fetch_next= lock == INK_LOCK_NONE ? 8 : 1;
  if (failed)
  {
    close_cursor();
    return failure(error);
  }
  cursor_tree= tree;
  scanning= true;
  scan_backward= backward;
  return 0;
}

/* The next row of the scan, image and value; nullptr: the end. */
int ha_inkstone::fetch(ink_row **row)
{
  while (!(*row= long_keys.next()))
  {
    if (int failed= fetch_from_tree(row))
      return failed;
    if (*row && share->key_room().is_cut((*row)->key))
    {
      if (int failed= gather_long_keys(**row))
        return failed;
    }
    else if (!*row || long_keys.has((*row)->key))
    {
      long_keys.pass_current();
      return 0;
    }
  }
  return 0;
}

/* Fetches all rows of a cut key's head. What comes behind them stays for the next fetch. */
int ha_inkstone::gather_long_keys(const ink_row &first)
{
  if (keep_current() || long_keys.start(first))
    return HA_ERR_OUT_OF_MEM;
  int failed= long_keys.add(first);
  for (ink_row *row; !failed;)
  {
    if ((failed= fetch_from_tree(&row)) || !row)
      break;
    if (!long_keys.belongs(*row))
    {
      row_at--;
      break;
    }
    failed= long_keys.add(*row);
  }
  return failed ? failed : long_keys.sort() ? HA_ERR_OUT_OF_MEM : 0;
}

/* Gives back the lock of the row that was fetched last. Where several were fetched to find it, all
   stay locked. */
void ha_inkstone::unlock_fetched()
{
  if (lock != INK_LOCK_NONE && cursor && !long_keys.gave_current())
    ink_cursor_unlock_row(cursor, nullptr);
}

int ha_inkstone::fetch_from_tree(ink_row **row)
{
  *row= nullptr;
  if (row_at == row_count)
  {
    ink_error error;
    row_at= row_count= 0;
    if (keep_current())
      return HA_ERR_OUT_OF_MEM;
    do
    {
      if ((shown_unlocked && ink_cursor_want_row(cursor, &error)) ||
          ink_cursor_fetch(cursor, rows, fetch_next, &row_count, &error))
      {
        row_count= 0;
        shown_unlocked= false;
        return failure(error);
      }
      shown_unlocked= row_count && ink_cursor_is_unlocked(cursor);
      /* Of a cut key the whole head is locked. */
    } while (shown_unlocked && share->key_room().is_cut(rows[0].key));
    if (lock == INK_LOCK_NONE)
      fetch_next= BATCH;
    if (!row_count)
      return 0;
  }
  *row= &rows[row_at++];
  return 0;
}

/* The next row of the scan. `beyond_bound`: the end of the range is not the end. */
int ha_inkstone::next(uchar *record, bool beyond_bound)
{
  for (;;)
  {
    ink_row *row;
    if (int failed= fetch(&row))
      return failed;
    if (row)
    {
      current= row->key;
      int result= deliver(*row, record);
      if (result != SKIPPED)
        return result;
      continue;
    }
    if (!beyond_bound || !scan_is_bounded || scan_backward)
    {
      at_edge= true;
      return HA_ERR_END_OF_FILE;
    }
    scan_is_bounded= false;
    ink_range rest= {slice(high_key), NOTHING, INK_INCLUDED, INK_UNBOUNDED};
    if (int failed= seek(rest, false))
      return failed;
  }
}
