/* SPDX-License-Identifier: GPL-2.0-only */
/* Reading rows.

   A scan is a cursor over a range of one tree. The range ends where the search key or the server's
   end of range ends, so that locking reads lock nothing behind it; index_next may go beyond. A
   handler that is kept open between statements (HANDLER ... READ) loses its cursor with its
   transaction, and goes on behind the key that it stood at. */
#include "handler/ha_inkstone.h"
#include "handler/bulk.h"
#include <functional>

const ink_tree *ha_inkstone::tree_of(uint index) const
{
  return codec.is_clustered(index) ? access.share->clustered() : access.share->index_tree(index);
}

const ink_tree *ha_inkstone::active_tree() const
{
  return active_index == MAX_KEY ? access.share->clustered() : tree_of(active_index);
}

void ha_inkstone::note_row_id(ink_slice key)
{
  if (codec.hidden_row_id())
    memcpy(buffers.row_id, key.data, ROW_ID_BYTES);
}

/* A whole row of the clustered tree into the record. */
int ha_inkstone::fill(ink_slice key, ink_slice row, uchar *record)
{
  row_outside.of_none();
  return fill(key, row, row_outside, record);
}

/* A row of the clustered tree into the record. What lies outside and is not wanted is not
   fetched. */
int ha_inkstone::fill(ink_slice key, ink_slice inline_bytes, OutsideParts &outside, uchar *record)
{
  note_row_id(key);
  const MY_BITMAP *wanted= reads_all_columns() ? nullptr : table->read_set;
  if (codec.clustered.restore(key, record) &&
      codec.rows.get(inline_bytes, outside, wanted, record))
    return 0;
  if (outside.has_failed())
    return outside.reason() ? failure(*outside.reason()) : HA_ERR_OUT_OF_MEM;
  sql_print_error("Inkstone: a row of table %s cannot be read; run CHECK TABLE",
                  access.share->name.c_str());
  return HA_ERR_CRASHED;
}

/* Puts a whole row into record[0], virtual columns with it, for a message that names values of
   it. */
int ha_inkstone::show_row(ink_slice key, ink_slice row)
{
  MY_BITMAP *saved= table->read_set;
  table->column_bitmaps_set_no_signal(&table->s->all_set, table->write_set);
  int failed= fill(key, row, table->record[0]);
  if (!failed && table->vfield)
    table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
  table->column_bitmaps_set_no_signal(saved, table->write_set);
  return failed;
}

int ha_inkstone::deliver(ink_row row, uchar *record)
{
  locked_key.clear();
  if (active_index == MAX_KEY || codec.is_clustered(active_index))
  {
    int failed= fill(row.key, row.value, scan.outside_of_current(), record);
    return failed ? failed : complete_apart(record);
  }
  return deliver_entry(row, record);
}

/* What the server makes of a condition or filter that does not hold. */
static int refused_by(check_result_t result)
{
  return result == CHECK_ABORTED_BY_USER ? HA_ERR_ABORTED_BY_USER : HA_ERR_END_OF_FILE;
}

/* An entry of a secondary index: its row, or what a covering read wants; SKIPPED if a pushed
   condition does not hold. */
int ha_inkstone::deliver_entry(ink_row row, uchar *record)
{
  const bool has_condition= pushed_idx_cond && pushed_idx_cond_keyno == active_index;
  const bool has_filter= pushed_rowid_filter && rowid_filter_is_active;
  /* The filter knows rows by the columns of the primary key, of which an entry may have but the
     beginning. */
  const bool filters_rows= has_filter && codec.clustered.has_prefix();
  ink_slice row_key;
  size_t extras_at;
  if (!active_codec().row_key(row.key, row.value, scratch, &row_key, &extras_at))
    return HA_ERR_CRASHED;
  note_row_id(row_key);
  if (has_condition || has_filter || covering())
  {
    if (!active_codec().restore_entry(row.key, row.value, scratch, record))
      return HA_ERR_CRASHED;
    check_result_t result= has_condition ? check_condition() : CHECK_POS;
    if (result == CHECK_POS && has_filter && !filters_rows)
      result= check_filter();
    if (result == CHECK_NEG)
    {
      scan.unlock_fetched();
      return SKIPPED;
    }
    if (result != CHECK_POS)
      return refused_by(result);
    /* An exclusive lock is one of the row, not only of the entry. */
    if (covering() && access.lock != INK_LOCK_EXCLUSIVE && !wants_unread_key())
      return 0;
    if (covering())
      for (const KeyPartCodec &part : active_codec().parts())
        if (is_unread_virtual(part))
          table->mark_virtual_column_deps(part.column());
  }
  if (int failed= look_up_ahead())
    return failed;
  return deliver_row_of(row_key, record, filters_rows);
}

/* The first entry of a batch whose row is wanted: the others' are read with it. */
int ha_inkstone::look_up_ahead()
{
  size_t count;
  const ink_row *entries= scan.take_batch(&count);
  if (!lookups.is_due(count))
    return 0;
  lookups.begin();
  for (size_t i= 0; i < count; i++)
    if (lookups.add(active_codec(), access.share->key_room(), entries[i]))
      return HA_ERR_OUT_OF_MEM;
  lookups.read(transaction(), access.share->clustered());
  return 0;
}

/* The row that an entry is of; SKIPPED if it has gone, or the filter, if one is left, does not want
   it. */
int ha_inkstone::deliver_row_of(ink_slice row_key, uchar *record, bool filters)
{
  bool found;
  if (int failed= get_row(row_key, record, &found))
    return failed;
  if (!found)
    return SKIPPED;
  const check_result_t result= filters ? check_filter() : CHECK_POS;
  if (result == CHECK_NEG)
    return SKIPPED;
  return result == CHECK_POS ? complete_apart(record) : refused_by(result);
}

/* A virtual column that is wanted, and of which an entry has but the beginning. */
bool ha_inkstone::is_unread_virtual(const KeyPartCodec &part) const
{
  const Field *column= part.column();
  return !part.is_whole() && !column->stored_in_db() && bitmap_is_set(table->read_set, column->field_index);
}

/* Whether a column is wanted of which an entry has but the beginning: of the primary key, for the
   row's position; of the index, by ordered scans of partitions, which compare it. */
bool ha_inkstone::wants_unread_key() const
{
  for (const KeyCodec *key : {&codec.clustered, &active_codec()})
    for (const KeyPartCodec &part : key->parts())
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

/* The filter of row ids. The server compares the record with the range's end here, too, if no
   condition is pushed, as where the key has but the beginning of a column: that is not in the
   record. The scan ends there by itself. */
check_result_t ha_inkstone::check_filter()
{
  key_range *const end= end_range;
  end_range= nullptr;
  check_result_t result= handler_rowid_filter_check(this);
  end_range= end;
  return result;
}

/* The row of a clustered key. It may have gone where reads are not consistent, or be locked where
   locked rows are skipped. */
int ha_inkstone::get_row(ink_slice row_key, uchar *record, bool *found)
{
  ink_slice row;
  if (access.lock == INK_LOCK_NONE && codec.rows.has_long_columns() && !access.share->key_room().is_cut(row_key))
    return get_row_outline(row_key, record, found);
  if (int failed= get(access.share->clustered(), row_key, &row_value, &row, found))
    return failed;
  return *found ? fill(row_key, row, record) : 0;
}

/* The same without a lock, and without long columns that are not wanted. Columns that lie in the
   row may point into its bytes, which stay; the snapshot of the outline goes. */
int ha_inkstone::get_row_outline(ink_slice row_key, uchar *record, bool *found)
{
  ink_error error;
  OwnedOutline outline;
  if (int refused= access.refuse_discarded())
    return refused;
  if (get_outline(transaction(), access.share->clustered(), row_key, &outline, &error))
    return failure(error);
  if (!(*found= outline != nullptr))
    return 0;
  const ink_slice bytes= ink_outline_inline(outline.get());
  if (row_inline.assign(bytes.data, bytes.len))
    return HA_ERR_OUT_OF_MEM;
  row_outside.of(outline.get());
  const int failed= fill(row_key, slice(row_inline), row_outside, record);
  row_outside.of_none();
  return failed;
}

/* The value of an image in a tree, read into `bytes`. Of the row itself it is noted whether that
   has
   locked it: unlock_row may be called for a record that has not all columns of the key. */
int ha_inkstone::get(const ink_tree *tree, ink_slice image, OwnedBytes *bytes, ink_slice *found_value, bool *found)
{
  ink_error error;
  ink_slice key, rest;
  bool locked= false;
  const KeyRoom &room= access.share->key_room();
  if (int refused= access.refuse_discarded())
    return refused;
  if (room.tree_key(image, cut_key, &key))
    return HA_ERR_OUT_OF_MEM;
  if (access.lock == INK_LOCK_NONE
          ? ink_get(transaction(), tree, key, bytes->to_fill(), found, &error)
          : ink_get_locking(transaction(), tree, key, access.lock, access.wait, bytes->to_fill(), found, &locked, &error))
    return failure(error);
  if (locked && tree == access.share->clustered() && locked_key.assign(key.data, key.len))
    return HA_ERR_OUT_OF_MEM;
  *found_value= bytes->slice();
  return *found && room.is_cut(image) && !KeyRoom::take_rest(found_value, &rest) ? HA_ERR_CRASHED : 0;
}

/* Virtual columns of the row in the record. The server computes none for covering reads, of which
   this may be one that wanted the row (wants_unread_key). */
void ha_inkstone::compute_virtual()
{
  const uint covered= keyread;
  keyread= MAX_KEY;
  table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
  keyread= covered;
}

/* Of a covering read that wanted the row: only those columns, as what the others are made of may be
   unread. */
void ha_inkstone::compute_unread_key()
{
  my_bitmap_map bits[bitmap_buffer_size(MAX_FIELDS) / sizeof(my_bitmap_map)];
  MY_BITMAP unread, *const wanted= table->read_set;
  if (my_bitmap_init(&unread, bits, table->s->fields))
    return;
  for (const KeyPartCodec &part : active_codec().parts())
    if (is_unread_virtual(part))
      bitmap_set_bit(&unread, part.column()->field_index);
  if (bitmap_is_clear_all(&unread))
    return;
  table->column_bitmaps_set_no_signal(&unread, table->write_set);
  compute_virtual();
  table->column_bitmaps_set_no_signal(wanted, table->write_set);
}

/* The server computes virtual columns in record[0], and in record[1] for a row that is replaced.
   Ordered scans of partitions read into places of their own, and compare the index's columns there.
   HANDLER keeps such rows for its next statement. */
int ha_inkstone::complete_apart(uchar *record)
{
  if (!table->part_info || record == table->record[0] || record == table->record[1])
  {
    /* Where indexes are merged the server says of the first one that it wants nothing but keys,
       computes nothing for the others, and compares a range's end with what stands there. Of the
       first one's the row is read for what its entries have but the beginning of; the others' base
       columns may be unread. */
    if (record == table->record[0] && table->vfield && keyread_enabled())
      covering() ? compute_unread_key() : compute_virtual();
    return 0;
  }
  const my_ptrdiff_t moved= record - table->record[0];
  if (table->vfield)
  {
    for (Field **field= table->field; *field; field++)
      (*field)->move_field_offset(moved);
    compute_virtual();
    for (Field **field= table->field; *field; field++)
      (*field)->move_field_offset(-moved);
  }
  return keep_blobs(record) ? HA_ERR_OUT_OF_MEM : 0;
}

/* Copies what the next row that is computed, or the end of the transaction, would take away. */
bool ha_inkstone::keep_blobs(uchar *record)
{
  const bool handler_reads= thd_sql_command(thd()) == SQLCOM_HA_READ;
  const auto each= [&](const std::function<void(uchar *, size_t)> &visit) {
    for (uint i= 0; i < table->s->blob_fields; i++)
    {
      const Field_blob *blob= static_cast<const Field_blob *>(table->field[table->s->blob_field[i]]);
      uchar *at= record + (blob->ptr - table->record[0]);
      if ((handler_reads || !blob->stored_in_db()) && bitmap_is_set(table->read_set, blob->field_index) &&
          !blob->is_null_in_record(record))
        visit(at + blob->pack_length_no_ptr(), blob->get_length(at));
    }
  };
  size_t bytes= 0;
  each([&](uchar *, size_t length) { bytes+= length; });
  kept_blobs.clear();
  if (kept_blobs.reserve(bytes))
    return true;
  each([&](uchar *pointer, size_t length) {
    const uchar *data, *copy= kept_blobs.end();
    memcpy(&data, pointer, sizeof data);
    kept_blobs.append(data, length);
    memcpy(pointer, &copy, sizeof copy);
  });
  return false;
}

/* The next row of the scan. `beyond_bound`: the end of the range is not the end. */
int ha_inkstone::next(uchar *record, bool beyond_bound)
{
  for (;;)
  {
    ink_row *row;
    if (int failed= scan.next(beyond_bound, &row))
      return failed;
    const int result= deliver(*row, record);
    if (result != SKIPPED)
      return result;
  }
}

/* The first row of what is searched for. */
int ha_inkstone::next_found(uchar *record, bool stops)
{
  int failed= scan.seek_found(active_tree(), stops);
  return failed ? failed : next(record, false);
}

int ha_inkstone::rnd_init(bool scans)
{
  if (bulk)
    if (int failed= bulk->settle())
      return failed;
  active_index= MAX_KEY;
  scan.begin();
  /* A discarded table is refused with the first row, as InnoDB does it. */
  return scans && !access.share->is_discarded() ? scan.seek(active_tree(), ink_range(), false) : 0;
}

int ha_inkstone::rnd_end()
{
  scan.end();
  return 0;
}

int ha_inkstone::rnd_next(uchar *record)
{
  int failed= scan.go_on(active_tree());
  return failed ? failed : next(record, false);
}

int ha_inkstone::rnd_pos(uchar *record, uchar *pos)
{
  if (is_outdated())
    for (const KeyPartCodec &part : codec.clustered.parts())
      if (access.share->image_version() < part.images_since())
        return HA_ERR_TABLE_NEEDS_UPGRADE;
  Buffer &key= scan.search.low;
  key.clear();
  if (codec.hidden_row_id() ? key.append(pos, ROW_ID_BYTES) : codec.clustered.put_key(key, pos, HA_WHOLE_KEY))
    return HA_ERR_OUT_OF_MEM;
  locked_key.clear();
  bool found;
  if (int failed= get_row(slice(key), record, &found))
    return failed;
  return found ? 0 : HA_ERR_KEY_NOT_FOUND;
}

int ha_inkstone::index_init(uint index, bool)
{
  if (is_outdated())
    return HA_ERR_TABLE_NEEDS_UPGRADE;
  if (bulk)
    if (int failed= bulk->settle())
      return failed;
  active_index= index;
  scan.begin();
  return 0;
}

int ha_inkstone::index_end()
{
  scan.end();
  active_index= MAX_KEY;
  return 0;
}

/* One row by all parts of a unique key, which was taken. */
int ha_inkstone::read_point(uchar *record)
{
  bool found;
  locked_key.clear();
  if (scan.stand_at_key())
    return HA_ERR_OUT_OF_MEM;
  if (codec.is_clustered(active_index))
  {
    int failed= get_row(scan.place(), record, &found);
    return failed ? failed : found ? 0 : HA_ERR_KEY_NOT_FOUND;
  }
  ink_row entry= {scan.place(), NO_KEY};
  if (int failed= get(active_tree(), entry.key, &entry_value, &entry.value, &found))
    return failed;
  if (!found)
    return HA_ERR_KEY_NOT_FOUND;
  int result= deliver_entry(entry, record);
  return result == SKIPPED ? HA_ERR_KEY_NOT_FOUND : result;
}

int ha_inkstone::index_read_map(uchar *record, const uchar *key, key_part_map map,
                                enum ha_rkey_function how)
{
  const KEY &definition= table->key_info[active_index];
  const key_part_map all_parts= make_prev_keypart_map(definition.user_defined_key_parts);
  if (scan.search.take_key(active_codec(), key, map))
    return HA_ERR_OUT_OF_MEM;
  /* HANDLER may turn round behind the row. */
  if (how == HA_READ_KEY_EXACT && active_codec().is_unique() && (map & all_parts) == all_parts &&
      !active_codec().key_has_null(key) && thd_sql_command(thd()) != SQLCOM_HA_READ)
    return read_point(record);
  if (int failed= scan.search.find(how))
  {
    if (failed == HA_ERR_KEY_NOT_FOUND)
      scan.stand_behind_all();
    return failed;
  }
  if (use_end_range && !scan.search.backward && how != HA_READ_KEY_EXACT &&
      scan.search.end_at(active_codec(), end_range))
    return HA_ERR_OUT_OF_MEM;
  const int result= next_found(record, use_end_range);
  return result == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : result;
}

int ha_inkstone::index_read_last_map(uchar *record, const uchar *key, key_part_map map)
{
  return index_read_map(record, key, map, HA_READ_PREFIX_LAST);
}

int ha_inkstone::index_first(uchar *record)
{
  scan.search.find_all();
  if (use_end_range && scan.search.end_at(active_codec(), end_range))
    return HA_ERR_OUT_OF_MEM;
  return next_found(record, use_end_range);
}

int ha_inkstone::index_last(uchar *record)
{
  scan.search.find_all();
  scan.search.backward= true;
  return next_found(record, false);
}

int ha_inkstone::index_next(uchar *record)
{
  int failed= scan.turn_forward(active_tree());
  return failed ? failed : next(record, !scan.stops_at_bound());
}

int ha_inkstone::index_prev(uchar *record)
{
  int failed= scan.turn_backward(active_tree());
  return failed ? failed : next(record, false);
}

int ha_inkstone::index_next_same(uchar *record, const uchar *key, uint length)
{
  /* A unique key was read as a point; there is no second row. */
  if (!scan.is_running())
    return HA_ERR_END_OF_FILE;
  /* The cursor's range is that of the key. */
  if (scan.is_within_key())
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
  for (const KeyPartCodec &part : codec.indexes[index].parts())
    in_range_check_pushed_down= in_range_check_pushed_down && part.is_whole();
  return nullptr;
}

bool ha_inkstone::rowid_filter_push(Rowid_filter *filter)
{
  pushed_rowid_filter= filter;
  if (filter && codec.clustered.has_prefix())
    for (const KeyPartCodec &part : codec.clustered.parts())
      bitmap_set_bit(table->read_set, part.column()->field_index);
  return false;
}
