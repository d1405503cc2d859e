/* SPDX-License-Identifier: GPL-2.0-only */
/* Insert, update, delete. A row's change in several trees is undone as a whole when one of them
   refuses. */
#include "handler/ha_inkstone.h"
#include "handler/bulk.h"

/* The clustered key of a row: of its primary key, or of the current row's hidden id. */
bool ha_inkstone::put_row_key(Buffer &out, const uchar *record)
{
  bool has_null;
  out.clear();
  return hidden_row_id() ? out.append(row_id, ROW_ID_BYTES)
                         : clustered.put_record(out, record, &has_null);
}

/* A row as the clustered tree has it: its key's image in row_key, its value in row_value. */
bool ha_inkstone::put_row(const uchar *record)
{
  return put_row_key(row_key, record) || row_codec.put(row_value, record) ||
         share->key_room().put_rest(row_value, slice(row_key));
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

int ha_inkstone::undo_to(const ink_mark &mark, int failed)
{
  /* A deadlock's victim is rolled back already. */
  if (failed == HA_ERR_LOCK_DEADLOCK)
    return failed;
  ink_error error;
  return ink_mark_rollback(transaction(), &mark, &error) ? failure(error) : failed;
}

/* LOAD DATA without SET computes virtual columns before the triggers change what they are made of,
   and not again: indexes would get entries of another row. */
int ha_inkstone::compute_behind_triggers()
{
  if (thd_sql_command(thd()) != SQLCOM_LOAD || !table->triggers || !table->vfield)
    return 0;
  for (Field **field= table->vfield; *field; field++)
    if (!(*field)->stored_in_db() && table->update_virtual_field(*field, false))
      return HA_ERR_GENERIC;
  return 0;
}

int ha_inkstone::write_row(const uchar *record)
{
  const bool counts= table->next_number_field && record == table->record[0];
  if (record == table->record[0])
    if (int failed= compute_behind_triggers())
      return failed;
  if (counts)
  {
    if (int failed= insert_before_reserving())
      return failed;
    if (int failed= update_auto_increment())
      return failed;
  }
  if (hidden_row_id())
  {
    uint64 id;
    if (int failed= share->take_row_ids(thd(), 1, &id))
      return failed;
    mi_int8store(row_id, id);
  }
  if (bulk && bulk->takes_rows())
    return bulk->add(record);
  if (int failed= note_auto_increment(record))
    return failed;
  if (put_row(record))
    return HA_ERR_OUT_OF_MEM;
  int failed= insert_row(record);
  if (counts)
  {
    count_auto_increment_row();
    if (!failed || failed == HA_ERR_FOUND_DUPP_KEY)
      if (int not_counted= count_auto_increment(table->next_number_field->val_uint(), !failed))
        failed= not_counted;
  }
  return end_own(failed);
}

/* A duplicate is locked: exclusively where the statement is about to change it, as with InnoDB. */
int ha_inkstone::insert(const ink_tree *tree, ink_slice key, ink_slice value)
{
  ink_error error;
  const uint32_t duplicate=
      session->updates_duplicates || session->replaces_duplicates ? INK_LOCK_EXCLUSIVE : INK_LOCK_SHARED;
  return ink_insert_or_lock(transaction(), tree, key, value, duplicate, &error) ? failure(error) : 0;
}

/* Inserts the row in row_key and row_value, and its entries. */
int ha_inkstone::insert_row(const uchar *record)
{
  ink_error error;
  ink_mark mark;
  ink_slice key;
  if (share->key_room().tree_key(slice(row_key), cut_key, &key))
    return HA_ERR_OUT_OF_MEM;
  if (has_entries() && ink_mark_set(transaction(), &mark, &error))
    return failure(error);
  session->duplicate_index= table->s->primary_key;
  if (int failed= insert(share->clustered(), key, slice(row_value)))
    return failed;
  count_change();
  int failed= insert_entries(record);
  return failed ? undo_to(mark, failed) : 0;
}

/* A row of the table was changed. */
void ha_inkstone::count_change()
{
  share->count_change();
  if (!is_change_noted && !own)
    session->note_change(share->name);
  is_change_noted= true;
}

int ha_inkstone::insert_entries(const uchar *record)
{
  for (uint i : share->indexes_by_age())
  {
    bool is_unique;
    if (indexes[i].put_entry(entry_key, entry_extra, record, row_key, &is_unique))
      return HA_ERR_OUT_OF_MEM;
    session->duplicate_index= i;
    if (int failed= insert(share->index_tree(i), slice(entry_key), slice(entry_extra)))
      return failed;
  }
  return 0;
}

int ha_inkstone::update_row(const uchar *old_record, const uchar *new_record)
{
  ink_error error;
  ink_mark mark;
  if (put_row_key(old_row_key, old_record) || put_row(new_record) || row_codec.put(other_value, old_record) ||
      share->key_room().put_rest(other_value, slice(old_row_key)))
    return HA_ERR_OUT_OF_MEM;
  /* The server counts no such row as changed, and does not log it. It looks itself only where it
     has read every column that the statement sets, and not for REPLACE. */
  if (row_key.equals(old_row_key) && row_value.equals(other_value))
    return end_own(HA_ERR_RECORD_IS_THE_SAME);
  if (table->s->blob_fields && empties_geometry(old_record, new_record))
  {
    my_error(ER_CANT_CREATE_GEOMETRY_OBJECT, MYF(0));
    return end_own(HA_ERR_NULL_IN_SPATIAL);
  }
  if (ink_mark_set(transaction(), &mark, &error))
    return failure(error);
  if (int failed= change_row(old_record, new_record))
    return end_own(undo_to(mark, failed));
  count_change();
  return end_own(update_auto_increment_of(old_record, new_record));
}

int ha_inkstone::change_row(const uchar *old_record, const uchar *new_record)
{
  ink_error error;
  const ink_tree *tree= share->clustered();
  session->duplicate_index= table->s->primary_key;
  bool moved= !row_key.equals(old_row_key);
  ink_slice key, old_key;
  if (share->key_room().tree_key(slice(row_key), cut_key, &key) ||
      share->key_room().tree_key(slice(old_row_key), old_cut_key, &old_key))
    return HA_ERR_OUT_OF_MEM;
  if (moved)
  {
    bool deleted;
    /* As InnoDB, which inserts the row anew: the value is noted, whatever becomes of the
       statement. */
    if (int failed= note_auto_increment(new_record))
      return failed;
    if (int failed= insert(tree, key, slice(row_value)))
      return failed;
    if (ink_delete(transaction(), tree, old_key, &deleted, &error))
      return failure(error);
    if (!deleted)
      return HA_ERR_KEY_NOT_FOUND;
  }
  else if (ink_update(transaction(), tree, key, slice(row_value), &error))
    return error.code == INK_ROW_NOT_FOUND ? HA_ERR_KEY_NOT_FOUND : failure(error);
  return update_entries(old_record, new_record, moved);
}

/* An empty value is none that a geometry has. The server refuses it in most ways, InnoDB here. */
bool ha_inkstone::empties_geometry(const uchar *old_record, const uchar *new_record) const
{
  for (Field **field= table->field; *field; field++)
  {
    if ((*field)->type() != MYSQL_TYPE_GEOMETRY || !bitmap_is_set(table->write_set, (*field)->field_index))
      continue;
    const Field_blob *column= static_cast<const Field_blob *>(*field);
    const auto is_empty= [&](const uchar *record) {
      return !column->is_null_in_record(record) && !column->get_length(column->ptr_in_record(record));
    };
    if (is_empty(new_record) && !is_empty(old_record))
      return true;
  }
  return false;
}

/* The server reads all columns of an index of which a column changes, and those of the primary key
   with them (HA_REQUIRES_KEY_COLUMNS_FOR_DELETE). */
int ha_inkstone::update_entries(const uchar *old_record, const uchar *new_record, bool moved)
{
  ink_error error;
  for (uint i : share->indexes_by_age())
  {
    bool touched= moved;
    for (const KeyPartCodec &part : indexes[i].parts())
      touched= touched || bitmap_is_set(table->write_set, part.column()->field_index);
    for (const KeyPartCodec &part : clustered.parts())
      touched= touched || bitmap_is_set(table->write_set, part.column()->field_index);
    if (!touched)
      continue;
    bool was_unique, is_unique;
    if (indexes[i].put_entry(other_key, other_value, old_record, old_row_key, &was_unique) ||
        indexes[i].put_entry(entry_key, entry_extra, new_record, row_key, &is_unique))
      return HA_ERR_OUT_OF_MEM;
    session->duplicate_index= i;
    const ink_tree *tree= share->index_tree(i);
    if (entry_key.equals(other_key))
    {
      if (!entry_extra.equals(other_value) &&
          ink_update(transaction(), tree, slice(entry_key), slice(entry_extra), &error))
        return failure(error);
      continue;
    }
    if (int failed= insert(tree, slice(entry_key), slice(entry_extra)))
      return failed;
    if (int failed= remove_entry(i, other_key))
      return failed;
  }
  return 0;
}

int ha_inkstone::remove_entry(uint index, const Buffer &key)
{
  ink_error error;
  bool deleted;
  if (ink_delete(transaction(), share->index_tree(index), slice(key), &deleted, &error))
    return failure(error);
  if (deleted)
    return 0;
  sql_print_error("Inkstone: index %s of table %s lacks the entry of a row; run CHECK TABLE",
                  table->key_info[index].name.str, share->name.c_str());
  return HA_ERR_CRASHED;
}

int ha_inkstone::delete_row(const uchar *record)
{
  ink_error error;
  ink_mark mark;
  ink_slice old_key;
  if (put_row_key(old_row_key, record) || share->key_room().tree_key(slice(old_row_key), old_cut_key, &old_key))
    return HA_ERR_OUT_OF_MEM;
  if (has_entries() && ink_mark_set(transaction(), &mark, &error))
    return failure(error);
  bool deleted;
  if (ink_delete(transaction(), share->clustered(), old_key, &deleted, &error))
    return failure(error);
  if (!deleted)
    return HA_ERR_KEY_NOT_FOUND;
  count_change();
  int failed= remove_row(record);
  return failed ? undo_to(mark, failed) : 0;
}

int ha_inkstone::remove_row(const uchar *record)
{
  for (uint i= 0; i < indexes.size(); i++)
  {
    if (is_clustered(i))
      continue;
    bool is_unique;
    if (indexes[i].put_entry(entry_key, entry_extra, record, old_row_key, &is_unique))
      return HA_ERR_OUT_OF_MEM;
    if (int failed= remove_entry(i, entry_key))
      return failed;
  }
  return 0;
}
