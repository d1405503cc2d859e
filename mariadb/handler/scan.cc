/* SPDX-License-Identifier: GPL-2.0-only */
/* What a scan does with its cursor, and where it goes on without one. */
#include "handler/scan.h"

Scan::Scan(const Access &access, const TableCodec &codec)
    : access(access), codec(codec), cursor_tree(nullptr), row_at(0), row_count(0), fetch_next(1),
      is_batch_new(false), scanning(false), backward(false), outlines(false), semi_consistent(false), shown_unlocked(false),
      stop_at_bound(false), edge_bound(0), at_edge(false), current(NO_KEY)
{
}

void Scan::begin()
{
  current= NO_KEY;
  stop_at_bound= search.is_bounded= at_edge= false;
}

void Scan::end()
{
  close();
  current= NO_KEY;
}

void Scan::close()
{
  cursor.reset();
  cursor_tree= nullptr;
  scanning= shown_unlocked= false;
  row_at= row_count= 0;
  long_keys.clear();
}

/* The memory that the current key lies in will be used again: a copy is kept, in case the scan
   changes its direction. True: out of memory. */
bool Scan::keep_current()
{
  if (!current.data || current.data == saved_key.data())
    return false;
  const bool no_memory= saved_key.assign(current.data, current.len);
  current= no_memory ? NO_KEY : slice(saved_key);
  return no_memory;
}

void Scan::suspend()
{
  keep_current();
  close();
}

/* Keeps where a scan ends, should HANDLER turn round there: then it stands between the rows on both
   sides. */
bool Scan::keep_edge(const ink_range &range, bool is_backward)
{
  const ink_slice end= is_backward ? range.low : range.high;
  at_edge= false;
  if (thd_sql_command(access.thd()) != SQLCOM_HA_READ)
    return false;
  edge_bound= is_backward ? range.low_bound : range.high_bound;
  /* The bound may be the edge itself. */
  return end.data != edge.data() && edge.assign(end.data, end.len);
}

int Scan::seek(const ink_tree *tree, const ink_range &range, bool is_backward)
{
  ink_error error;
  if (int refused= access.refuse_discarded())
    return refused;
  const bool unlocked= semi_consistent && access.wait == INK_WAIT && tree == access.share->clustered() &&
                       thd_tx_isolation(access.thd()) <= ISO_READ_COMMITTED;
  outlines= access.lock == INK_LOCK_NONE && tree == access.share->clustered() && codec.rows.has_long_columns();
  const ink_scan scan= {is_backward, access.lock, access.wait, unlocked, outlines};
  ink_range in_tree;
  int failed;
  if (keep_edge(range, is_backward) || long_keys.begin(key_room(), range, is_backward, &in_tree))
    return HA_ERR_OUT_OF_MEM;
  if (cursor && cursor_tree == tree)
    failed= ink_cursor_seek(cursor.get(), &in_tree, &scan, &error);
  else
  {
    close();
    failed= open_cursor(access.transaction(), tree, in_tree, scan, &cursor, &error);
  }
  row_at= row_count= 0;
  shown_unlocked= false;
  fetch_next= access.lock == INK_LOCK_NONE ? 8 : 1;
  if (failed)
  {
    close();
    return access.failure(error);
  }
  cursor_tree= tree;
  scanning= true;
  backward= is_backward;
  return 0;
}

int Scan::seek_found(const ink_tree *tree, bool stops)
{
  stop_at_bound= stops;
  return seek(tree, search.range, search.backward);
}

int Scan::go_on(const ink_tree *tree)
{
  if (scanning)
    return 0;
  return seek(tree, {current, NO_KEY, current.data ? INK_EXCLUDED : INK_UNBOUNDED, INK_UNBOUNDED}, false);
}

bool Scan::stand_at_key()
{
  close();
  at_edge= false;
  const bool no_memory= saved_key.assign(search.low.data(), search.low.length());
  current= no_memory ? NO_KEY : slice(saved_key);
  return no_memory;
}

void Scan::stand_behind_all()
{
  close();
  edge_bound= INK_UNBOUNDED;
  backward= false;
  at_edge= true;
}

/* The bound of what a range with this one leaves out. */
static uint32_t other_side(uint32_t bound)
{
  switch (bound)
  {
  case INK_INCLUDED:
    return INK_EXCLUDED;
  case INK_EXCLUDED:
    return INK_INCLUDED;
  default:
    return bound;
  }
}

int Scan::turn_forward(const ink_tree *tree)
{
  if (scanning && !backward)
    return 0;
  suspend();
  ink_range rest= {current, NO_KEY, INK_EXCLUDED, INK_UNBOUNDED};
  if (at_edge)
    rest= {slice(edge), NO_KEY, backward ? edge_bound : other_side(edge_bound), INK_UNBOUNDED};
  else if (!current.data)
    return HA_ERR_END_OF_FILE;
  if (at_edge && !backward && edge_bound == INK_UNBOUNDED)
    return HA_ERR_END_OF_FILE;
  search.is_bounded= false;
  return seek(tree, rest, false);
}

int Scan::turn_backward(const ink_tree *tree)
{
  if (scanning && backward)
    return 0;
  suspend();
  ink_range rest= {NO_KEY, current, INK_UNBOUNDED, INK_EXCLUDED};
  if (at_edge)
    rest= {NO_KEY, slice(edge), INK_UNBOUNDED, backward ? other_side(edge_bound) : edge_bound};
  else if (!current.data)
    return HA_ERR_END_OF_FILE;
  if (at_edge && backward && edge_bound == INK_UNBOUNDED)
    return HA_ERR_END_OF_FILE;
  return seek(tree, rest, true);
}

/* The next row of the scan, image and value; nullptr: the end. */
int Scan::fetch(ink_row **row)
{
  while (!(*row= long_keys.next()))
  {
    if (int failed= fetch_from_tree(row))
      return failed;
    if (*row && key_room().is_cut((*row)->key))
    {
      if (int failed= complete(*row))
        return failed;
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
int Scan::gather_long_keys(const ink_row &first)
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
    if (!(failed= complete(row)))
      failed= long_keys.add(*row);
  }
  return failed ? failed : long_keys.sort() ? HA_ERR_OUT_OF_MEM : 0;
}

/* What of the current row's value lies outside of the row. */
OutsideParts &Scan::outside_of_current()
{
  if (outlines && cursor && row_at && !long_keys.gave_current())
    outside.of(cursor.get(), row_at - 1);
  else
    outside.of_none();
  return outside;
}

/* Makes the value of the row that was fetched last a whole one. */
int Scan::complete(ink_row *row)
{
  if (!outlines)
    return 0;
  outside.of(cursor.get(), row_at - 1);
  if (!outside.count() || outside.put_together(row->value, &row->value))
    return 0;
  return outside.reason() ? access.failure(*outside.reason()) : HA_ERR_OUT_OF_MEM;
}

void Scan::unlock_fetched()
{
  if (access.lock != INK_LOCK_NONE && cursor && !long_keys.gave_current())
    ink_cursor_unlock_row(cursor.get(), nullptr);
}

int Scan::fetch_from_tree(ink_row **row)
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
      if ((shown_unlocked && ink_cursor_want_row(cursor.get(), &error)) ||
          ink_cursor_fetch(cursor.get(), rows, fetch_next, &row_count, &error))
      {
        row_count= 0;
        shown_unlocked= false;
        return access.failure(error);
      }
      shown_unlocked= row_count && ink_cursor_is_unlocked(cursor.get());
      /* Of a cut key the whole head is locked. */
    } while (shown_unlocked && key_room().is_cut(rows[0].key));
    is_batch_new= true;
    if (access.lock == INK_LOCK_NONE)
      fetch_next= BATCH;
    if (!row_count)
      return 0;
  }
  *row= &rows[row_at++];
  return 0;
}

const ink_row *Scan::take_batch(size_t *count)
{
  const size_t from= row_at ? row_at - 1 : 0;
  *count= is_batch_new ? row_count - from : 0;
  is_batch_new= false;
  return rows + from;
}

int Scan::next(bool beyond_bound, ink_row **row)
{
  for (;;)
  {
    if (int failed= fetch(row))
      return failed;
    if (*row)
    {
      current= (*row)->key;
      return 0;
    }
    if (!beyond_bound || !is_within_key())
    {
      at_edge= true;
      return HA_ERR_END_OF_FILE;
    }
    search.is_bounded= false;
    if (int failed= seek(cursor_tree, {slice(search.high), NO_KEY, INK_INCLUDED, INK_UNBOUNDED}, false))
      return failed;
  }
}
