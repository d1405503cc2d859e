/* SPDX-License-Identifier: GPL-2.0-only */
/* Holding rows back, and inserting them as if one by one (handler/bulk.h). */
#include "handler/bulk.h"
#include <algorithm>
#include <new>

/** As much as is held back: enough for long runs, little enough to stay in the processor's
    cache. */
static const size_t HELD_BYTES_MAX= 512 * 1024, HELD_ROWS_MAX= 4096;

BulkInsert::BulkInsert(ha_inkstone &handler)
    : table(handler), entries(new (std::nothrow) Batch[handler.codec.indexes.size() + 1]), count(0),
      held_bytes(0), tried(0), first_generated(SIZE_MAX), counts_rows(false), is_copy(false), copied(0), kept_conditions(UINT_MAX)
{
}

int BulkInsert::add(const uchar *record)
{
  ha_inkstone &t= table;
  if (!count)
    clear();
  ink_slice key;
  RowBuffers &made= t.buffers;
  if (made.row.put(t.codec, record, made.row_id) || made.row.tree_key(t.codec, &key) ||
      clustered.add(key, slice(made.row.value)) || clustered_parts.add(made.row.parts()))
    return HA_ERR_OUT_OF_MEM;
  held_bytes= clustered.length();
  for (uint i= 0; i < t.codec.indexes.size(); i++)
  {
    if (t.codec.is_clustered(i))
      continue;
    if (made.entry.put(t.codec.indexes[i], record, made.row) ||
        entries[i].add(slice(made.entry.key), slice(made.entry.value)))
      return HA_ERR_OUT_OF_MEM;
    held_bytes+= entries[i].length();
  }
  if (t.table->found_next_number_field)
    auto_increments.push_back(t.auto_increment.value_of(record));
  /* A partition's rows have got their values by the server. */
  counts_rows= t.table->next_number_field != nullptr;
  if (counts_rows)
    t.auto_increment.count_row();
  conditions.push_back(t.thd()->get_stmt_da()->cond_count());
  if (t.insert_id_for_cur_row && !t.thd()->first_successful_insert_id_in_cur_stmt)
    first_generated= count;
  count++;
  return held_bytes >= HELD_BYTES_MAX || count >= HELD_ROWS_MAX ? flush() : 0;
}

/** Whether an index may refuse a row for one that is there. */
bool BulkInsert::refuses_rows(uint index) const
{
  return (table.table->key_info[index].flags & HA_NOSAME) != 0;
}

bool BulkInsert::refuses_entries() const
{
  const std::vector<uint> &indexes= table.access.share->indexes_by_age();
  return std::any_of(indexes.begin(), indexes.end(), [this](uint i) { return refuses_rows(i); });
}

int BulkInsert::flush()
{
  if (!count)
    return 0;
  ha_inkstone &t= table;
  tried= count;
  /* The last rows of a statement, if they are the first, too, are sorted in memory. */
  const bool more= count >= HELD_ROWS_MAX || held_bytes >= HELD_BYTES_MAX;
  int failed= !sorters && (t.fills_copy || more) ? begin_sorting() : 0;
  if (!failed)
    failed= copies() ? copy_held() : insert_held();
  if (int not_noted= count_auto_increments(failed))
    failed= failed ? failed : not_noted;
  for (size_t i= 0; !failed && i < count; i++)
    t.count_change();
  /* LAST_INSERT_ID() is of a row that was inserted. */
  if (failed && first_generated != SIZE_MAX && first_generated + 1 >= tried)
    t.thd()->first_successful_insert_id_in_cur_stmt= 0;
  first_generated= SIZE_MAX;
  if (failed)
    keep_conditions(kept_conditions == UINT_MAX ? conditions[tried - 1] : kept_conditions);
  conditions.clear();
  /* What a message about a duplicate shows lies in the batches: they are cleared with the next
     row. */
  count= 0;
  return failed;
}

int BulkInsert::insert_held()
{
  ha_inkstone &t= table;
  ink_error error;
  ink_mark mark;
  /* Without a mark the statement's rows of a tree are one bulk. */
  if (!refuses_entries())
  {
    const int failed= insert_clustered();
    return failed ? failed : insert_batches();
  }
  size_t done;
  if (ink_mark_set(t.transaction(), &mark, &error))
    return t.failure(error);
  int failed= insert_rows(&done, &error);
  if (failed)
    tried= std::min(done, count - 1) + 1;
  else
    failed= insert_batches();
  if (failed != HA_ERR_FOUND_DUPP_KEY)
    return failed;
  return ink_mark_rollback(t.transaction(), &mark, &error) ? t.failure(error) : insert_one_by_one();
}

/* Inserts the rows that are held back into the clustered tree; how many. `error` says which
   HA_ERR_FOUND_DUPP_KEY it is. */
int BulkInsert::insert_rows(size_t *done, ink_error *error)
{
  ha_inkstone &t= table;
  const ink_row *rows= clustered.rows();
  const ink_parts *parts= clustered_parts.rows();
  *done= 0;
  if (!rows || !parts)
    return HA_ERR_OUT_OF_MEM;
  return ink_insert_many_with_parts(t.transaction(), t.access.share->clustered(), rows, parts, count, done, error)
             ? t.failure(*error)
             : 0;
}

/* Where no index but the clustered key refuses rows. */
int BulkInsert::insert_clustered()
{
  ha_inkstone &t= table;
  ink_error error;
  size_t done;
  const int failed= insert_rows(&done, &error);
  if (failed)
    tried= done + 1;
  if (failed != HA_ERR_FOUND_DUPP_KEY)
    return failed;
  return refused(done, t.table->s->primary_key, error);
}

/* As if rows were inserted one by one: those behind the one that failed do not count. `failure` is
   what that has failed with. */
int BulkInsert::count_auto_increments(int failure)
{
  ulonglong next= 0;
  int failed= 0;
  for (size_t i= 0; i < tried && i < auto_increments.size(); i++)
  {
    const bool inserted= !failure || i + 1 < tried;
    if (counts_rows && !failed && (inserted || failure == HA_ERR_FOUND_DUPP_KEY))
      failed= table.auto_increment.count(auto_increments[i], inserted);
    set_if_bigger(next, table.auto_increment.next_after(auto_increments[i]));
  }
  auto_increments.clear();
  if (failed)
    return failed;
  return next ? table.counter().note(table.thd(), next) : 0;
}

void BulkInsert::clear()
{
  clustered.clear();
  clustered_parts.clear();
  for (uint i= 0; i < table.codec.indexes.size(); i++)
    entries[i].clear();
}

/* The entries of the rows that are held back. Those that are sorted are behind the last that can be
   refused. */
int BulkInsert::insert_batches()
{
  for (uint i= 0; i < table.codec.indexes.size(); i++)
  {
    if (table.codec.is_clustered(i) || sorts(i))
      continue;
    if (int failed= insert_batch(table.access.share->index_tree(i), entries[i]))
      return failed;
  }
  return sort_entries(count);
}

int BulkInsert::insert_batch(const ink_tree *tree, Batch &batch)
{
  ink_error error;
  const ink_row *rows= batch.sorted_rows();
  if (!rows)
    return HA_ERR_OUT_OF_MEM;
  size_t done;
  if (!ink_insert_many(table.transaction(), tree, rows, count, &done, &error))
    return 0;
  tried= batch.number_of(rows[std::min(done, count - 1)]) + 1;
  return table.failure(error);
}

int BulkInsert::insert_one_by_one()
{
  ink_error error;
  const ink_parts *parts= clustered_parts.rows();
  if (!parts)
    return HA_ERR_OUT_OF_MEM;
  for (size_t row= 0; row < count; row++)
  {
    const ink_row &first= clustered.rows()[row];
    tried= row + 1;
    if (ink_insert_with_parts(table.transaction(), table.access.share->clustered(), first.key, first.value,
                              parts[row], INK_LOCK_SHARED, &error))
      return refused(row, table.table->s->primary_key, error);
    for (uint i : table.access.share->indexes_by_age())
    {
      /* The statement fails: nothing will look for what is left out. */
      if (sorts(i))
        continue;
      const ink_row &entry= entries[i].rows()[row];
      if (ink_insert(table.transaction(), table.access.share->index_tree(i), entry.key, entry.value, &error))
        return refused(row, i, error);
    }
  }
  return 0;
}

/* The server shows the record in its message, when the batches are gone: it gets the refused row,
   from the handler's own memory. */
int BulkInsert::refused(size_t row, uint index, const ink_error &error)
{
  ha_inkstone &t= table;
  ink_row first= clustered.rows()[row];
  t.access.session->duplicate_index= index;
  if (!t.codec.room->restore(&first, t.cut_key))
    return HA_ERR_CRASHED;
  RowImage &row_image= t.buffers.row;
  if (row_image.take_key(first.key) || row_image.value.assign(first.value.data, first.value.len))
    return HA_ERR_OUT_OF_MEM;
  if (int failed= t.show_row(slice(row_image.key), slice(row_image.value)))
    return failed;
  return t.failure(error);
}

/* A temporary table is seen by its session's transaction, which may have begun before it. (The
   server calls an ALTER's copy of any table temporary.) */
bool BulkInsert::commits_copy() const
{
  return table.table->s->tmp_table == NO_TMP_TABLE ||
         table.access.share->name.find("/#sql-alter-") != std::string::npos;
}

int BulkInsert::begin_sorting()
{
  ink_error error;
  const size_t indexes= table.codec.indexes.size();
  sorters.reset(new (std::nothrow) OwnedSorter[indexes + 1]);
  if (!sorters)
    return HA_ERR_OUT_OF_MEM;
  is_copy= table.fills_copy;
  for (uint i : table.access.share->indexes_by_age())
    if ((copies() || !refuses_rows(i)) && new_sorter(table.access.share->home(), &sorters[i], &error))
      return table.failure(error);
  return 0;
}

/* Rows stay in the order in which they came: one that is refused is the first of them. */
int BulkInsert::copy_held()
{
  ha_inkstone &t= table;
  ink_error error;
  size_t done;
  note_conditions();
  if (commits_copy())
    if (int failed= t.access.copying.begin(*t.access.session, t.access.share->home()))
      return failed;
  int failed= insert_rows(&done, &error);
  if (failed && failed != HA_ERR_FOUND_DUPP_KEY)
    return failed;
  if (int not_sorted= sort_entries(failed ? done : count))
    return not_sorted;
  if (failed)
  {
    if (int earlier= refused_by_index(copied + done))
      return earlier;
    tried= done + 1;
    return refused(done, t.table->s->primary_key, error);
  }
  copied+= count;
  return commits_copy() ? t.access.copying.count(t.thd(), clustered.length()) : 0;
}

/* Of the first rows that are held back. */
int BulkInsert::sort_entries(size_t rows)
{
  ink_error error;
  for (uint i : table.access.share->indexes_by_age())
  {
    if (!sorts(i))
      continue;
    const ink_row *entry= entries[i].rows();
    if (!entry)
      return HA_ERR_OUT_OF_MEM;
    for (size_t row= 0; row < rows; row++)
      if (ink_sorter_add(sorters[i].get(), entry[row].key, entry[row].value, &error))
        return table.failure(error);
  }
  return 0;
}

int BulkInsert::settle()
{
  const int failed= flush();
  if (failed || copies() || !sorters)
    return failed;
  const int not_inserted= insert_entries();
  sorters.reset();
  return not_inserted;
}

int BulkInsert::finish()
{
  /* A statement that has failed is undone: its entries are not missed. */
  const int failed= table.thd()->is_error() ? flush() : settle();
  return failed || !sorters ? failed : copies() ? finish_copy() : 0;
}

/* The server may have come to a row that cannot be: an earlier one that an index refuses is
   reported in its place. */
int BulkInsert::finish_copy()
{
  THD *thd= table.thd();
  int failed;
  if (!thd->is_error())
    failed= insert_entries();
  else
    failed= thd_kill_level(thd) == THD_IS_NOT_KILLED ? refused_by_index(copied) : 0;
  if (failed && kept_conditions != UINT_MAX)
    keep_conditions(kept_conditions);
  if (failed || !commits_copy() || (failed= table.access.copying.commit(thd)))
    return failed;
  return complete_copy();
}

/* What was committed now and then is not durable yet, and the server may take it for what is there
   after a crash. Others may have begun transactions meanwhile: their snapshots would find some of
   the rows. */
int BulkInsert::complete_copy()
{
  ink_error error;
  if (ink_flush_log(table.access.share->home(), table.access.session->durability(), &error))
    return table.failure(error);
  ink_table *filled= table.access.share->engine_table();
  for (size_t i= 0; i < ink_table_tree_count(filled); i++)
    if (ink_complete_tree(table.access.share->home(), ink_table_tree(filled, i), &error))
      return table.failure(error);
  return 0;
}

int BulkInsert::insert_entries()
{
  Progress progress= {table.thd(), 0, 0};
  const std::vector<uint> &indexes= table.access.share->indexes_by_age();
  for (uint i : indexes)
    if (sorts(i))
      progress.total+= ink_sorter_count(sorters[i].get());
  for (uint i : indexes)
  {
    const int failed= sorts(i) ? insert_index(i, &progress) : 0;
    if (failed)
      return failed == HA_ERR_FOUND_DUPP_KEY && copies() ? refused_by_index(copied) : failed;
  }
  return 0;
}

int BulkInsert::insert_index(uint index, Progress *progress)
{
  Access &access= table.access;
  SortedInsert insert(access.share->index_tree(index), sorters[index].get(), progress);
  const bool commits= copies() && commits_copy();
  while (!insert.is_over())
  {
    if (commits)
      if (int failed= access.copying.begin(*access.session, access.share->home()))
        return failed;
    if (int failed= insert.next(access.transaction()))
      return failed;
    if (commits)
      if (int failed= access.copying.count(table.thd(), insert.inserted_bytes()))
        return failed;
  }
  return 0;
}

/* Reports the first row, of those before row number `before` of the copy, that an index refuses. 0:
   there is none. */
int BulkInsert::refused_by_index(uint64 before)
{
  ha_inkstone &t= table;
  ink_error error;
  ink_row entry= ink_row();
  uint refusing= MAX_KEY;
  for (uint i : t.access.share->indexes_by_age())
  {
    uint64_t number;
    ink_row row;
    bool found= false;
    if (!(t.table->key_info[i].flags & HA_NOSAME))
      continue;
    if (ink_sorter_first_repeated(sorters[i].get(), &number, &row, &found, &error))
      return t.failure(error);
    if (!found || number >= before)
      continue;
    before= number;
    refusing= i;
    entry= row;
  }
  if (refusing == MAX_KEY)
    return 0;
  kept_conditions= conditions_at(before);
  t.access.session->duplicate_index= refusing;
  const int failed= t.show_row_of(t.codec.indexes[refusing], t.table->key_info[refusing], entry);
  return failed ? failed : HA_ERR_FOUND_DUPP_KEY;
}

void BulkInsert::note_conditions()
{
  for (size_t i= 0; i < count; i++)
    if (changes_of_conditions.empty() || changes_of_conditions.back().second != conditions[i])
      changes_of_conditions.emplace_back(copied + i, conditions[i]);
}

uint BulkInsert::conditions_at(uint64 row) const
{
  uint there= 0;
  for (const std::pair<uint64, uint> &change : changes_of_conditions)
    if (change.first <= row)
      there= change.second;
  return there;
}

/* Takes back what the server said behind the first `kept` conditions, of rows that it would not
   have come to. */
void BulkInsert::keep_conditions(size_t kept)
{
  THD *thd= table.thd();
  Diagnostics_area *all= thd->get_stmt_da();
  if (all->cond_count() <= kept)
    return;
  Diagnostics_area first(thd->query_id, false, true);
  Diagnostics_area::Sql_condition_iterator before= all->sql_conditions();
  while (first.cond_count() < kept)
    first.push_warning(thd, before++);
  all->clear_warning_info(thd->query_id);
  Diagnostics_area::Sql_condition_iterator again= first.sql_conditions();
  while (const Sql_condition *condition= again++)
    all->push_warning(thd, condition);
}

bool ha_inkstone::has_unique_key() const
{
  const KEY *first= table->key_info;
  return std::any_of(first, first + table->s->keys,
                     [](const KEY &key) { return (key.flags & HA_NOSAME) != 0; });
}

void ha_inkstone::start_bulk_insert(ha_rows rows, uint)
{
  /* The server looks for duplicates itself where it keeps hashes or periods unique. Partitions hold
     back each for itself: which row of the statement was refused first would be lost. A row that
     is held back is no parent to the next one. */
  if (rows == 1 || bulk || table->s->long_unique_table || table->s->period.unique_keys ||
      access.own || (table->part_info && has_unique_key()) || looks_for_parents())
    return;
  bulk.reset(new (std::nothrow) BulkInsert(*this));
  if (bulk && !bulk->is_ready())
    bulk.reset();
}

int ha_inkstone::end_bulk_insert()
{
  if (!bulk)
    return 0;
  /* Of a deadlock's victim nothing is left that a row could be added to. */
  int failed= thd()->transaction_rollback_request ? 0 : bulk->finish();
  bulk.reset();
  /* The server has reported an error of a later row than the one that is refused: row by row it
     would not have come to that. */
  if (failed && thd()->is_error())
  {
    thd()->clear_error();
    print_error(failed, MYF(0));
  }
  /* The server takes the reason from there. */
  if (failed)
    my_errno= failed;
  return failed;
}
