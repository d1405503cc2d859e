/* SPDX-License-Identifier: GPL-2.0-only */
/* Insert, update, delete. A row's change in several trees is undone as a whole when one of them
   refuses. */
#include "handler/ha_inkstone.h"
#include "handler/bulk.h"

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

/* What the values of rows that are held back ask for counts before more are reserved. */
int ha_inkstone::insert_before_reserving()
{
  if (!bulk || next_insert_id < auto_inc_interval_for_cur_row.maximum() ||
      table->next_number_field->val_int())
    return 0;
  return bulk->flush();
}

int ha_inkstone::write_row(const uchar *record)
{
  /* The server locks no temporary sequence that it fills itself. */
  if (table->s->table_type == TABLE_TYPE_SEQUENCE && !access.own)
    if (int failed= begin_unlocked())
      return failed;
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
  if (codec.hidden_row_id())
  {
    uint64 id;
    if (int failed= access.share->take_row_ids(thd(), 1, &id))
      return failed;
    mi_int8store(buffers.row_id, id);
  }
  if (int refused= access.refuse_discarded())
    return refused;
  if (bulk && bulk->takes_rows())
    return bulk->add(record);
  if (int failed= auto_increment.note(record))
    return failed;
  if (buffers.row.put(codec, record, buffers.row_id))
    return HA_ERR_OUT_OF_MEM;
  int failed= insert_row(record);
  if (counts)
  {
    auto_increment.count_row();
    if (!failed || failed == HA_ERR_FOUND_DUPP_KEY)
      if (int not_counted= auto_increment.count(table->next_number_field->val_uint(), !failed))
        failed= not_counted;
  }
  return end_own(failed);
}

/* How a duplicate is locked: exclusively where the statement is about to change it, as with
   InnoDB. */
uint32_t ha_inkstone::lock_of_duplicate() const
{
  return access.session->updates_duplicates || access.session->replaces_duplicates ? INK_LOCK_EXCLUSIVE
                                                                                   : INK_LOCK_SHARED;
}

int ha_inkstone::insert(const ink_tree *tree, ink_slice key, ink_slice value)
{
  ink_error error;
  return ink_insert_or_lock(transaction(), tree, key, value, lock_of_duplicate(), &error) ? failure(error) : 0;
}

/* Inserts the row in buffers.row into the clustered tree. */
int ha_inkstone::insert_clustered(ink_slice key)
{
  ink_error error;
  const RowImage &row= buffers.row;
  return ink_insert_with_parts(transaction(), access.share->clustered(), key, slice(row.value), row.parts(),
                               lock_of_duplicate(), &error)
             ? failure(error)
             : 0;
}

/* Inserts the row in buffers.row, and its entries. */
int ha_inkstone::insert_row(const uchar *record)
{
  ink_error error;
  ink_mark mark;
  ink_slice key;
  if (buffers.row.tree_key(codec, &key))
    return HA_ERR_OUT_OF_MEM;
  if (codec.has_entries() && ink_mark_set(transaction(), &mark, &error))
    return failure(error);
  access.session->duplicate_index= table->s->primary_key;
  if (int failed= check_parents(table->s->primary_key, record))
    return failed;
  if (int failed= insert_clustered(key))
    return failed;
  count_change();
  int failed= insert_entries(record);
  return failed ? undo_to(mark, failed) : 0;
}

/* A row of the table was changed. */
void ha_inkstone::count_change()
{
  access.share->count_change();
  if (!is_change_noted && !access.own)
    access.session->note_change(access.share->name);
  is_change_noted= true;
}

int ha_inkstone::insert_entries(const uchar *record)
{
  for (uint i : access.share->indexes_by_age())
  {
    if (int failed= check_parents(i, record))
      return failed;
    EntryImage &entry= buffers.entry;
    if (entry.put(codec.indexes[i], record, buffers.row))
      return HA_ERR_OUT_OF_MEM;
    access.session->duplicate_index= i;
    if (int failed= insert(access.share->index_tree(i), slice(entry.key), slice(entry.value)))
      return failed;
  }
  return 0;
}

int ha_inkstone::update_row(const uchar *old_record, const uchar *new_record)
{
  ink_error error;
  ink_mark mark;
  if (buffers.old_row.put(codec, old_record, buffers.row_id) ||
      buffers.row.put(codec, new_record, buffers.row_id))
    return HA_ERR_OUT_OF_MEM;
  /* The server counts no such row as changed, and does not log it. It looks itself only where it
     has read every column that the statement sets, and not for REPLACE. */
  if (buffers.row.same(buffers.old_row))
    return end_own(HA_ERR_RECORD_IS_THE_SAME);
  if (table->s->blob_fields && empties_geometry(old_record, new_record))
  {
    my_error(ER_CANT_CREATE_GEOMETRY_OBJECT, MYF(0));
    return end_own(HA_ERR_NULL_IN_SPATIAL);
  }
  if (ink_mark_set(transaction(), &mark, &error))
    return failure(error);
  if (!access.own)
    access.session->note_attempt();
  if (int failed= change_row(old_record, new_record))
    return end_own(undo_to(mark, failed));
  count_change();
  if (int failed= auto_increment.count_update(old_record, new_record))
    return end_own(failed);
  int failed= change_children(old_record, new_record);
  return end_own(failed ? undo_to(mark, failed) : 0);
}

int ha_inkstone::change_row(const uchar *old_record, const uchar *new_record)
{
  ink_error error;
  const ink_tree *tree= access.share->clustered();
  access.session->duplicate_index= table->s->primary_key;
  const bool moved= !buffers.row.same_key(buffers.old_row);
  ink_slice key, old_key;
  if (int failed= refuse_children(table->s->primary_key, old_record, new_record))
    return failed;
  if (buffers.row.tree_key(codec, &key) || buffers.old_row.tree_key(codec, &old_key))
    return HA_ERR_OUT_OF_MEM;
  if (moved)
  {
    bool deleted;
    /* As InnoDB, which inserts the row anew: the value is noted, whatever becomes of the
       statement. */
    if (int failed= auto_increment.note(new_record))
      return failed;
    if (int failed= check_parents(table->s->primary_key, new_record))
      return failed;
    if (int failed= insert_clustered(key))
      return failed;
    if (ink_delete(transaction(), tree, old_key, &deleted, &error))
      return failure(error);
    if (!deleted)
      return HA_ERR_KEY_NOT_FOUND;
  }
  else if (ink_update_with_parts(transaction(), tree, key, slice(buffers.row.value), buffers.row.parts(), &error))
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

/* Whether a column of a key is one that the statement sets. */
static bool is_set_in(const KeyCodec &key, const TABLE *table)
{
  return std::any_of(key.parts().begin(), key.parts().end(), [table](const KeyPartCodec &part) {
    return bitmap_is_set(table->write_set, part.column()->field_index);
  });
}

/* The server reads all columns of an index of which a column changes, and those of the primary key
   with them (HA_REQUIRES_KEY_COLUMNS_FOR_DELETE). */
int ha_inkstone::update_entries(const uchar *old_record, const uchar *new_record, bool moved)
{
  const bool all= moved || is_set_in(codec.clustered, table);
  for (uint i : access.share->indexes_by_age())
    if (all || is_set_in(codec.indexes[i], table))
      if (int failed= update_entry(i, old_record, new_record))
        return failed;
  return 0;
}

int ha_inkstone::update_entry(uint index, const uchar *old_record, const uchar *new_record)
{
  EntryImage &entry= buffers.entry, &old_entry= buffers.old_entry;
  if (int failed= refuse_children(index, old_record, new_record))
    return failed;
  if (old_entry.put(codec.indexes[index], old_record, buffers.old_row) ||
      entry.put(codec.indexes[index], new_record, buffers.row))
    return HA_ERR_OUT_OF_MEM;
  access.session->duplicate_index= index;
  const ink_tree *tree= access.share->index_tree(index);
  if (entry.key.equals(old_entry.key))
  {
    ink_error error;
    if (!entry.value.equals(old_entry.value) &&
        ink_update(transaction(), tree, slice(entry.key), slice(entry.value), &error))
      return failure(error);
    return 0;
  }
  if (int failed= check_parents(index, new_record))
    return failed;
  int failed= insert(tree, slice(entry.key), slice(entry.value));
  return failed ? failed : remove_entry(index, old_entry.key);
}

int ha_inkstone::remove_entry(uint index, const Buffer &key)
{
  ink_error error;
  bool deleted;
  if (ink_delete(transaction(), access.share->index_tree(index), slice(key), &deleted, &error))
    return failure(error);
  if (deleted)
    return 0;
  sql_print_error("Inkstone: index %s of table %s lacks the entry of a row; run CHECK TABLE",
                  table->key_info[index].name.str, access.share->name.c_str());
  return HA_ERR_CRASHED;
}

int ha_inkstone::delete_row(const uchar *record)
{
  ink_error error;
  ink_mark mark;
  ink_slice old_key;
  if (buffers.old_row.put_key(codec, record, buffers.row_id) || buffers.old_row.tree_key(codec, &old_key))
    return HA_ERR_OUT_OF_MEM;
  const bool may_fail= codec.has_entries() || (checks_references && references.is_parent());
  if (may_fail && ink_mark_set(transaction(), &mark, &error))
    return failure(error);
  bool deleted;
  if (ink_delete(transaction(), access.share->clustered(), old_key, &deleted, &error))
    return failure(error);
  if (!deleted)
    return HA_ERR_KEY_NOT_FOUND;
  count_change();
  int failed= refuse_children(table->s->primary_key, record, nullptr);
  if (!failed)
    failed= remove_row(record);
  if (!failed)
    failed= change_children(record, nullptr);
  return failed ? undo_to(mark, failed) : 0;
}

int ha_inkstone::remove_row(const uchar *record)
{
  for (uint i : access.share->indexes_by_age())
  {
    if (buffers.entry.put(codec.indexes[i], record, buffers.old_row))
      return HA_ERR_OUT_OF_MEM;
    int failed= remove_entry(i, buffers.entry.key);
    if (!failed)
      failed= refuse_children(i, record, nullptr);
    if (failed)
      return failed;
  }
  return 0;
}
