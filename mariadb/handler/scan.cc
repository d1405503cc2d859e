/* SPDX-License-Identifier: GPL-2.0-only */
/* Reading rows.

   A scan is a cursor over a range of one tree. The range ends where the search key or the server's
   end of range ends, so that locking reads lock nothing behind it; index_next may go beyond. A
   handler that is kept open between statements (HANDLER ... READ) loses its cursor with its
   transaction, and goes on behind the key that it stood at. */
#include "handler/ha_inkstone.h"
#include "handler/bulk.h"

static const ink_slice NOTHING= {nullptr, 0};

const ink_tree *ha_inkstone::active_tree() const
{
  return active_index == MAX_KEY || is_clustered(active_index) ? share->clustered()
                                                               : share->index_tree(active_index);
}

void ha_inkstone::note_row_id(ink_slice key)
{
  if (hidden_row_id())
    memcpy(row_id, key.data, ROW_ID_BYTES);
}

/* A row of the clustered tree into the record. */
int ha_inkstone::fill(ink_slice key, ink_slice row, uchar *record)
{
  note_row_id(key);
  const MY_BITMAP *wanted= reads_all_columns() ? nullptr : table->read_set;
  if (clustered.restore(key, record) &&
      row_codec.get(row, share->added_columns(), wanted, record))
    return 0;
  sql_print_error("Inkstone: a row of table %s cannot be read; run CHECK TABLE",
                  share->name.c_str());
  return HA_ERR_CRASHED;
}

int ha_inkstone::deliver(ink_row row, uchar *record)
{
  locked_key.clear();
  if (active_index == MAX_KEY || is_clustered(active_index))
  {
    int failed= fill(row.key, row.value, record);
    return failed ? failed : complete_apart(record);
  }
  return deliver_entry(row, record);
}

/* An entry of a secondary index: its row, or what a covering read wants; SKIPPED if a pushed
   condition does not hold. */
int ha_inkstone::deliver_entry(ink_row row, uchar *record)
{
  const KeyCodec &codec= active_codec();
  bool has_condition= pushed_idx_cond && pushed_idx_cond_keyno == active_index;
  const bool has_filter= pushed_rowid_filter && rowid_filter_is_active;
  /* The filter knows rows by the columns of the primary key, of which an entry may have but the
     beginning. */
  const bool filters_rows= has_filter && clustered.has_prefix();
  ink_slice row_key;
  size_t extras_at;
  if (!codec.row_key(row.key, row.value, scratch, &row_key, &extras_at))
    return HA_ERR_CRASHED;
  note_row_id(row_key);
  if (has_condition || has_filter || covering())
  {
    if (!codec.restore_entry(row.key, row.value, scratch, record))
      return HA_ERR_CRASHED;
    check_result_t result= has_condition ? check_condition() : CHECK_POS;
    if (result == CHECK_POS && has_filter && !filters_rows)
      result= handler_rowid_filter_check(this);
    if (result == CHECK_NEG)
    {
      unlock_fetched();
      return SKIPPED;
    }
    if (result != CHECK_POS)
      return result == CHECK_ABORTED_BY_USER ? HA_ERR_ABORTED_BY_USER : HA_ERR_END_OF_FILE;
    /* An exclusive lock is one of the row, not only of the entry. */
    if (covering() && lock != INK_LOCK_EXCLUSIVE && !wants_unread_key())
      return 0;
  }
  bool found;
  if (int failed= get_row(row_key, record, &found))
    return failed;
  if (!found)
    return SKIPPED;
  if (filters_rows)
  {
    const check_result_t result= handler_rowid_filter_check(this);
    if (result == CHECK_NEG)
      return SKIPPED;
    if (result != CHECK_POS)
      return result == CHECK_ABORTED_BY_USER ? HA_ERR_ABORTED_BY_USER : HA_ERR_END_OF_FILE;
  }
  return complete_apart(record);
}

/* Whether a column is wanted of which an entry has but the beginning: of the primary key, for the
   row's position; of the index, by ordered scans of partitions, which compare it. */
bool ha_inkstone::wants_unread_key() const
{
  for (const KeyCodec *codec : {&clustered, &active_codec()})
    for (const KeyPartCodec &part : codec->parts())
      if (!part.is_whole() && bitmap_is_set(table->read_set, part.column()->field_index))
        return true;
  return false;
}

/* The pushed condition for the entry in the record. The server would also compare the record with
   the range's end; idx_cond_push says where it must not. */
check_result_t ha_inkstone::check_condition()
{
  key_range *const end= end_range;
  if (!in_range_check_pushed_down)
    end_range= nullptr;
  check_result_t result= handler_index_cond_check(this);
  end_range= end;
  return result;
}

/* The row of a clustered key. It may have gone where reads are not consistent, or be locked where
   locked rows are skipped. */
int ha_inkstone::get_row(ink_slice row_key, uchar *record, bool *found)
{
  ink_slice row;
  if (int failed= get(share->clustered(), row_key, &value, &row, found))
    return failed;
  return *found ? fill(row_key, row, record) : 0;
}

/* The value of an image in a tree, read into `buffer`. Of the row itself it is noted whether that
   has locked it: unlock_row may be called for a record that has not all columns of the key. */
int ha_inkstone::get(const ink_tree *tree, ink_slice image, ink_buffer *buffer, ink_slice *found_value, bool *found)
{
  ink_error error;
  ink_slice key, rest;
  bool locked= false;
  if (share->key_room().tree_key(image, cut_key, &key))
    return HA_ERR_OUT_OF_MEM;
  int failed= lock == INK_LOCK_NONE ? ink_get(transaction(), tree, key, buffer, found, &error)
                                    : ink_get_locking(transaction(), tree, key, lock, wait, buffer, found, &locked,
                                                      &error);
  if (failed)
    return failure(error);
  if (locked && tree == share->clustered() && locked_key.assign(key.data, key.len))
    return HA_ERR_OUT_OF_MEM;
  *found_value= ink_slice{buffer->data, buffer->len};
  return *found && share->key_room().is_cut(image) && !KeyRoom::take_rest(found_value, &rest) ? HA_ERR_CRASHED : 0;
}

int ha_inkstone::rnd_init(bool scan)
{
  if (bulk)
    if (int failed= bulk->flush())
      return failed;
  active_index= MAX_KEY;
  current= NOTHING;
  stop_at_bound= scan_is_bounded= at_edge= false;
  return scan ? seek(ink_range(), false) : 0;
}

int ha_inkstone::rnd_end()
{
  close_cursor();
  current= NOTHING;
  return 0;
}

int ha_inkstone::rnd_next(uchar *record)
{
  if (!scanning)
  {
    ink_range rest= {current, NOTHING, current.data ? INK_EXCLUDED : INK_UNBOUNDED, INK_UNBOUNDED};
    if (int failed= seek(rest, false))
      return failed;
  }
  return next(record, false);
}

int ha_inkstone::rnd_pos(uchar *record, uchar *pos)
{
  if (is_outdated())
    for (const KeyPartCodec &part : clustered.parts())
      if (share->image_version() < part.images_since())
        return HA_ERR_TABLE_NEEDS_UPGRADE;
  low_key.clear();
  bool no_memory= hidden_row_id() ? low_key.append(pos, ROW_ID_BYTES)
                                  : clustered.put_key(low_key, pos, HA_WHOLE_KEY);
  if (no_memory)
    return HA_ERR_OUT_OF_MEM;
  locked_key.clear();
  bool found;
  if (int failed= get_row(slice(low_key), record, &found))
    return failed;
  return found ? 0 : HA_ERR_KEY_NOT_FOUND;
}

int ha_inkstone::index_init(uint index, bool)
{
  if (is_outdated())
    return HA_ERR_TABLE_NEEDS_UPGRADE;
  if (bulk)
    if (int failed= bulk->flush())
      return failed;
  active_index= index;
  current= NOTHING;
  stop_at_bound= scan_is_bounded= at_edge= false;
  return 0;
}

int ha_inkstone::index_end()
{
  close_cursor();
  current= NOTHING;
  active_index= MAX_KEY;
  return 0;
}

/* One row by all parts of a unique key, in low_key. */
int ha_inkstone::read_point(uchar *record)
{
  bool found;
  close_cursor();
  at_edge= false;
  locked_key.clear();
  if (saved_key.assign(low_key.data(), low_key.length()))
    return HA_ERR_OUT_OF_MEM;
  current= slice(saved_key);
  if (is_clustered(active_index))
  {
    int failed= get_row(current, record, &found);
    return failed ? failed : found ? 0 : HA_ERR_KEY_NOT_FOUND;
  }
  ink_row entry= {current, NOTHING};
  if (int failed= get(active_tree(), current, &entry_value, &entry.value, &found))
    return failed;
  if (!found)
    return HA_ERR_KEY_NOT_FOUND;
  int result= deliver_entry(entry, record);
  return result == SKIPPED ? HA_ERR_KEY_NOT_FOUND : result;
}

/* The end of the server's range, where it is known to count. */
int ha_inkstone::upper_bound(Buffer &out, const key_range *end, uint32_t *bound)
{
  out.clear();
  *bound= INK_UNBOUNDED;
  if (!end)
    return 0;
  if (active_codec().put_key(out, end->key, end->keypart_map))
    return HA_ERR_OUT_OF_MEM;
  if (end->flag == HA_READ_BEFORE_KEY || next_prefix(out))
    *bound= INK_EXCLUDED;
  return 0;
}

int ha_inkstone::index_read_map(uchar *record, const uchar *key, key_part_map map,
                                enum ha_rkey_function how)
{
  const KeyCodec &codec= active_codec();
  const KEY &definition= table->key_info[active_index];
  stop_at_bound= use_end_range;
  low_key.clear();
  if (codec.put_key(low_key, key, map))
    return HA_ERR_OUT_OF_MEM;

  key_part_map all_parts= make_prev_keypart_map(definition.user_defined_key_parts);
  /* HANDLER may turn round behind the row. */
  if (how == HA_READ_KEY_EXACT && codec.is_unique() && (map & all_parts) == all_parts &&
      !codec.key_has_null(key) && thd_sql_command(thd()) != SQLCOM_HA_READ)
    return read_point(record);

  high_key.clear();
  if (high_key.append(low_key.data(), low_key.length()))
    return HA_ERR_OUT_OF_MEM;
  uint32_t behind= next_prefix(high_key) ? INK_EXCLUDED : INK_UNBOUNDED;
  const ink_slice low= slice(low_key);
  ink_range range= {NOTHING, NOTHING, INK_UNBOUNDED, INK_UNBOUNDED};
  bool backward= false;
  scan_is_bounded= false;
  switch (how)
  {
  case HA_READ_KEY_EXACT:
    scan_is_bounded= behind == INK_EXCLUDED;
    range= {low, slice(high_key), INK_INCLUDED, behind};
    break;
  case HA_READ_KEY_OR_NEXT:
    range.low= low;
    range.low_bound= INK_INCLUDED;
    break;
  case HA_READ_AFTER_KEY:
    if (behind == INK_UNBOUNDED)
    {
      /* Nothing is greater. */
      close_cursor();
      edge_bound= INK_UNBOUNDED;
      scan_backward= false;
      at_edge= true;
      return HA_ERR_KEY_NOT_FOUND;
    }
    /* The bound moves to where the range begins. */
    low_key.clear();
    if (low_key.append(high_key.data(), high_key.length()))
      return HA_ERR_OUT_OF_MEM;
    range.low= slice(low_key);
    range.low_bound= INK_INCLUDED;
    break;
  case HA_READ_BEFORE_KEY:
    backward= true;
    range.high= low;
    range.high_bound= INK_EXCLUDED;
    break;
  case HA_READ_KEY_OR_PREV:
  case HA_READ_PREFIX_LAST_OR_PREV:
    backward= true;
    range.high= slice(high_key);
    range.high_bound= behind;
    break;
  case HA_READ_PREFIX_LAST:
    backward= true;
    range= {low, slice(high_key), INK_INCLUDED, behind};
    break;
  default: /* searches in spatial indexes, which there are none of */
    return HA_ERR_UNSUPPORTED;
  }
  if (use_end_range && !backward && how != HA_READ_KEY_EXACT)
  {
    if (int failed= upper_bound(high_key, end_range, &range.high_bound))
      return failed;
    range.high= slice(high_key);
  }
  if (int failed= seek(range, backward))
    return failed;
  int result= next(record, false);
  return result == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : result;
}

int ha_inkstone::index_read_last_map(uchar *record, const uchar *key, key_part_map map)
{
  return index_read_map(record, key, map, HA_READ_PREFIX_LAST);
}

int ha_inkstone::index_first(uchar *record)
{
  ink_range range= {NOTHING, NOTHING, INK_UNBOUNDED, INK_UNBOUNDED};
  scan_is_bounded= false;
  stop_at_bound= use_end_range;
  if (use_end_range)
  {
    if (int failed= upper_bound(high_key, end_range, &range.high_bound))
      return failed;
    range.high= slice(high_key);
  }
  int failed= seek(range, false);
  return failed ? failed : next(record, false);
}

int ha_inkstone::index_last(uchar *record)
{
  scan_is_bounded= stop_at_bound= false;
  int failed= seek(ink_range(), true);
  return failed ? failed : next(record, false);
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

/* A cursor that is gone, or that runs the other way, is opened behind the current row. */
int ha_inkstone::index_next(uchar *record)
{
  if (!scanning || scan_backward)
  {
    suspend();
    ink_range rest= {current, NOTHING, INK_EXCLUDED, INK_UNBOUNDED};
    if (at_edge)
      rest= {slice(edge), NOTHING, scan_backward ? edge_bound : other_side(edge_bound), INK_UNBOUNDED};
    else if (!current.data)
      return HA_ERR_END_OF_FILE;
    if (at_edge && !scan_backward && edge_bound == INK_UNBOUNDED)
      return HA_ERR_END_OF_FILE;
    scan_is_bounded= false;
    if (int failed= seek(rest, false))
      return failed;
  }
  return next(record, !stop_at_bound);
}

int ha_inkstone::index_prev(uchar *record)
{
  if (!scanning || !scan_backward)
  {
    suspend();
    ink_range rest= {NOTHING, current, INK_UNBOUNDED, INK_EXCLUDED};
    if (at_edge)
      rest= {NOTHING, slice(edge), INK_UNBOUNDED, scan_backward ? other_side(edge_bound) : edge_bound};
    else if (!current.data)
      return HA_ERR_END_OF_FILE;
    if (at_edge && scan_backward && edge_bound == INK_UNBOUNDED)
      return HA_ERR_END_OF_FILE;
    if (int failed= seek(rest, true))
      return failed;
  }
  return next(record, false);
}

int ha_inkstone::index_next_same(uchar *record, const uchar *key, uint length)
{
  /* A unique key was read as a point; there is no second row. */
  if (!scanning)
    return HA_ERR_END_OF_FILE;
  /* The cursor's range is that of the key. */
  if (scan_is_bounded && !scan_backward)
    return next(record, false);
  return handler::index_next_same(record, key, length);
}

int ha_inkstone::read_range_first(const key_range *start, const key_range *end, bool eq_range,
                                  bool sorted)
{
  use_end_range= true;
  int result= handler::read_range_first(start, end, eq_range, sorted);
  use_end_range= false;
  return result;
}

Item *ha_inkstone::idx_cond_push(uint index, Item *condition)
{
  pushed_idx_cond= condition;
  pushed_idx_cond_keyno= index;
  /* An entry does not give a column of which the key has only the beginning. Then the server
     compares the range's end with the row. */
  in_range_check_pushed_down= true;
  for (const KeyPartCodec &part : indexes[index].parts())
    in_range_check_pushed_down= in_range_check_pushed_down && part.is_whole();
  return nullptr;
}

bool ha_inkstone::rowid_filter_push(Rowid_filter *filter)
{
  pushed_rowid_filter= filter;
  if (filter && clustered.has_prefix())
    for (const KeyPartCodec &part : clustered.parts())
      bitmap_set_bit(table->read_set, part.column()->field_index);
  return false;
}
