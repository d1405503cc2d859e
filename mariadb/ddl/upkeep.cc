/* SPDX-License-Identifier: GPL-2.0-only */
/* CHECK, ANALYZE and OPTIMIZE TABLE. */
#include "handler/ha_inkstone.h"

int ha_inkstone::analyze(THD *thd, HA_CHECK_OPT *)
{
  share->forget_statistics();
  if (info(HA_STATUS_CONST | HA_STATUS_VARIABLE))
    return HA_ADMIN_FAILED;
  return !is_outdated() && share->keep_statistics(thd, table) ? HA_ADMIN_FAILED : HA_ADMIN_OK;
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
  ink_error error;
  ink_buffer text= {nullptr, 0, 0};
  int failed= ink_verify_table(share->engine_table(), &text, &error);
  ink_buffer_free(&text);
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
  for (size_t i= 1; i < ink_table_tree_count(share->engine_table()); i++)
  {
    const ink_tree *tree= ink_table_tree(share->engine_table(), i);
    const ink_slice name= ink_tree_name(tree);
    const std::string text(reinterpret_cast<const char *>(name.data), name.len);
    bool is_known= text == META_TREE;
    for (uint index= 0; index < table->s->keys; index++)
      is_known= is_known || (!is_clustered(index) && text == table->key_info[index].name.str);
    if (is_known)
      continue;
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE,
                        "Inkstone: tree %s is no index of the table", text.c_str());
    return true;
  }
  return false;
}

/* Each row must have its entry in each index, and the indexes nothing else. */
int ha_inkstone::check_entries(THD *thd)
{
  uint64 row_count= 0;
  lock= INK_LOCK_NONE;
  MY_BITMAP *saved= table->read_set;
  table->column_bitmaps_set_no_signal(&table->s->all_set, table->write_set);
  int failed= ha_rnd_init(true);
  while (!failed && !(failed= ha_rnd_next(table->record[0])))
  {
    row_count++;
    failed= check_entries_of_row(thd);
  }
  ha_rnd_end();
  table->column_bitmaps_set_no_signal(saved, table->write_set);
  if (failed != HA_ERR_END_OF_FILE)
    return failed == HA_ERR_CRASHED ? HA_ADMIN_CORRUPT : HA_ADMIN_FAILED;
  for (uint i= 0; i < indexes.size(); i++)
  {
    uint64 entry_count= 0;
    if (is_clustered(i))
      continue;
    if (count_entries(i, &entry_count))
      return HA_ADMIN_FAILED;
    if (entry_count == row_count)
      continue;
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE,
                        "Inkstone: index %s has %llu entries for %llu rows",
                        table->key_info[i].name.str, (ulonglong) entry_count,
                        (ulonglong) row_count);
    return HA_ADMIN_CORRUPT;
  }
  return HA_ADMIN_OK;
}

int ha_inkstone::check_entries_of_row(THD *thd)
{
  ink_error error;
  if (put_row_key(row_key, table->record[0]))
    return HA_ERR_OUT_OF_MEM;
  for (uint i= 0; i < indexes.size(); i++)
  {
    bool is_unique, found;
    if (is_clustered(i))
      continue;
    if (indexes[i].put_entry(entry_key, entry_extra, table->record[0], row_key, &is_unique))
      return HA_ERR_OUT_OF_MEM;
    if (ink_get(transaction(), share->index_tree(i), slice(entry_key), &entry_value, &found, &error))
      return failure(error);
    if (found && entry_value.len == entry_extra.length() &&
        (!entry_value.len || !memcmp(entry_value.data, entry_extra.data(), entry_value.len)))
      continue;
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE,
                        "Inkstone: index %s %s", table->key_info[i].name.str,
                        found ? "has an entry that is not its row's" : "lacks the entry of a row");
    return HA_ERR_CRASHED;
  }
  return 0;
}

int ha_inkstone::count_entries(uint index, uint64 *count)
{
  ink_error error;
  const ink_range everything= {};
  const ink_scan forward= {};
  ink_cursor *entries;
  if (ink_cursor_open(transaction(), share->index_tree(index), &everything, &forward, &entries,
                      &error))
    return failure(error);
  size_t fetched= 1;
  int failed= 0;
  while (fetched && !failed)
  {
    if (ink_cursor_fetch(entries, rows, BATCH, &fetched, &error))
      failed= failure(error);
    else
      *count+= fetched;
  }
  ink_cursor_close(entries);
  return failed;
}
