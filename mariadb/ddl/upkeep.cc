/* SPDX-License-Identifier: GPL-2.0-only */
/* CHECK, ANALYZE and OPTIMIZE TABLE. */
#include "handler/ha_inkstone.h"

int ha_inkstone::analyze(THD *thd, HA_CHECK_OPT *)
{
  access.share->forget_statistics();
  if (info(HA_STATUS_CONST | HA_STATUS_VARIABLE))
    return HA_ADMIN_FAILED;
  return !is_outdated() && access.share->keep_statistics(thd, table) ? HA_ADMIN_FAILED : HA_ADMIN_OK;
}

/* The server recreates the table, as it does for InnoDB. */
int ha_inkstone::optimize(THD *, HA_CHECK_OPT *)
{
  return HA_ADMIN_TRY_ALTER;
}

int ha_inkstone::check(THD *thd, HA_CHECK_OPT *options)
{
  if (is_outdated())
    return HA_ADMIN_NEEDS_ALTER;
  if (access.refuse_discarded())
    return HA_ADMIN_CORRUPT;
  ink_error error;
  OwnedBytes text;
  int failed= ink_verify_table(access.share->engine_table(), text.to_fill(), &error);
  if (!failed && has_unknown_tree(thd))
    return HA_ADMIN_CORRUPT;
  if (!failed)
    return options->flags & T_QUICK ? HA_ADMIN_OK : check_entries(thd);
  push_warning(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, error.message);
  return error.code == INK_CORRUPT ? HA_ADMIN_CORRUPT : HA_ADMIN_FAILED;
}

/* Each tree must be the rows, the facts, or an index. */
bool ha_inkstone::has_unknown_tree(THD *thd)
{
  for (size_t i= 1; i < ink_table_tree_count(access.share->engine_table()); i++)
  {
    const std::string text= text_of(ink_tree_name(ink_table_tree(access.share->engine_table(), i)));
    bool is_known= text == META_TREE;
    for (uint index= 0; index < table->s->keys; index++)
      is_known= is_known || (!codec.is_clustered(index) && text == table->key_info[index].name.str);
    if (is_known)
      continue;
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE,
                        "Inkstone: tree %s is no index of the table", text.c_str());
    return true;
  }
  return false;
}

/* Each row must have its entry in each index, and the indexes nothing else. That the sums are equal
   shows it by one pass over each tree; where they are not, row by row it is found out why. */
int ha_inkstone::check_entries(THD *thd)
{
  EntrySums of_rows, of_indexes;
  int failed= check_rows([&] { return add_entries_of_row(&of_rows); });
  for (uint i= 0; !failed && i < codec.indexes.size(); i++)
    if (!codec.is_clustered(i))
      failed= add_entries(thd, i, &of_indexes[i]);
  if (!failed && of_rows != of_indexes)
    failed= check_rows([&] { return check_entries_of_row(thd); });
  if (failed == HA_ERR_CRASHED)
    return HA_ADMIN_CORRUPT;
  if (failed)
  {
    if (thd_kill_level(thd) != THD_IS_NOT_KILLED)
      push_warning(thd, Sql_condition::WARN_LEVEL_ERROR, ER_QUERY_INTERRUPTED,
                   ER_THD(thd, ER_QUERY_INTERRUPTED));
    return HA_ADMIN_FAILED;
  }
  for (uint i= 0; i < codec.indexes.size(); i++)
  {
    if (of_rows[i] == of_indexes[i])
      continue;
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE,
                        "Inkstone: index %s has %llu entries for %llu rows",
                        table->key_info[i].name.str, (ulonglong) of_indexes[i].count,
                        (ulonglong) of_rows[i].count);
    return HA_ADMIN_CORRUPT;
  }
  return HA_ADMIN_OK;
}

/* Does the check for each row, which is in record 0. */
template <class Check> int ha_inkstone::check_rows(Check check)
{
  access.lock= INK_LOCK_NONE;
  MY_BITMAP *saved= table->read_set;
  table->column_bitmaps_set_no_signal(&table->s->all_set, table->write_set);
  int failed= ha_rnd_init(true);
  while (!failed && !(failed= ha_rnd_next(table->record[0])))
    failed= check();
  ha_rnd_end();
  table->column_bitmaps_set_no_signal(saved, table->write_set);
  return failed == HA_ERR_END_OF_FILE ? 0 : failed;
}

/* The entry that the row in record 0, whose key was made, has in an index. */
int ha_inkstone::put_entry_of_row(uint index)
{
  return buffers.entry.put(codec.indexes[index], table->record[0], buffers.row) ? HA_ERR_OUT_OF_MEM : 0;
}

int ha_inkstone::add_entries_of_row(EntrySums *sums)
{
  if (buffers.row.put_key(codec, table->record[0], buffers.row_id))
    return HA_ERR_OUT_OF_MEM;
  for (uint i= 0; i < codec.indexes.size(); i++)
  {
    if (codec.is_clustered(i))
      continue;
    if (int failed= put_entry_of_row(i))
      return failed;
    (*sums)[i].add(slice(buffers.entry.key), slice(buffers.entry.value));
  }
  return 0;
}

int ha_inkstone::check_entries_of_row(THD *thd)
{
  ink_error error;
  if (buffers.row.put_key(codec, table->record[0], buffers.row_id))
    return HA_ERR_OUT_OF_MEM;
  for (uint i= 0; i < codec.indexes.size(); i++)
  {
    bool found;
    const EntryImage &entry= buffers.entry;
    if (codec.is_clustered(i))
      continue;
    if (int failed= put_entry_of_row(i))
      return failed;
    if (ink_get(transaction(), access.share->index_tree(i), slice(entry.key), entry_value.to_fill(), &found, &error))
      return failure(error);
    if (found && same_bytes(entry_value.slice(), slice(entry.value)))
      continue;
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE,
                        "Inkstone: index %s %s", table->key_info[i].name.str,
                        found ? "has an entry that is not its row's" : "lacks the entry of a row");
    return HA_ERR_CRASHED;
  }
  return 0;
}

int ha_inkstone::add_entries(THD *thd, uint index, EntrySum *sum)
{
  ink_error error;
  OwnedCursor entries;
  ink_row rows[Scan::BATCH];
  size_t fetched= 1;
  if (open_cursor(transaction(), access.share->index_tree(index), ink_range(), ink_scan(), &entries, &error))
    return failure(error);
  while (fetched)
  {
    if (thd_kill_level(thd) != THD_IS_NOT_KILLED)
      return HA_ERR_ABORTED_BY_USER;
    if (ink_cursor_fetch(entries.get(), rows, Scan::BATCH, &fetched, &error))
      return failure(error);
    for (size_t i= 0; i < fetched; i++)
      sum->add(rows[i].key, rows[i].value);
  }
  return 0;
}
