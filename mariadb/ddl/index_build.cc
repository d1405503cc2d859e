/* SPDX-License-Identifier: GPL-2.0-only */
/* Filling new indexes from the rows, beside writers (ddl/index_build.h). */
#include "ddl/index_build.h"
#include "ddl/tables.h"
#include "handler/ha_inkstone.h"
#include "handler/sorted_insert.h"
#include "server/variables.h"
#include <algorithm>

/** So few changed rows are left to the time when writers are kept away. */
static const size_t FEW_CHANGES= 200;
/** Where writers are faster than their changes are taken over, they wait in the end. */
static const int ROUNDS_MAX= 20;
/** So many bytes of rows that come in order are gathered before they are inserted. */
static const uint64 IN_ORDER_BYTES= 8 << 20;

/* The beginning of a CHAR or BINARY: a message about a duplicate leaves out blanks and zeroes at
   the end of what there is of a value. */
static bool is_beginning(const KEY_PART_INFO &part)
{
  return (part.key_part_flag & HA_PART_KEY_SEG) && part.field->real_type() == MYSQL_TYPE_STRING;
}

void cut_values(const KEY &key)
{
  const KEY_PART_INFO *const end= key.key_part + key.user_defined_key_parts;
  for (const KEY_PART_INFO *part= key.key_part; part != end; part++)
  {
    if (!is_beginning(*part))
      continue;
    CHARSET_INFO *charset= part->field->charset();
    char *value= reinterpret_cast<char *>(part->field->ptr);
    const size_t length= part->field->pack_length();
    const size_t kept= charset->charpos(value, value + length, part->length / charset->mbmaxlen);
    if (kept < length)
      charset->fill(value + kept, length - kept, charset->pad_char);
  }
}

/* Entries on their way into a tree. Those of a tree of rows are in order as long as each one's key
   is behind the one before: then they can go at any time. Behind one that is not, all wait to be
   sorted, as their place may be anywhere. */
struct EntriesInOrder
{
  OwnedSorter sorter;

  explicit EntriesInOrder(bool may_be_in_order) : in_order(may_be_in_order) {}
  int begin(ink_database *in, ink_error *error)
  {
    bytes= 0;
    return new_sorter(in, &sorter, error);
  }
  int add(ink_slice key, ink_slice value, ink_error *error)
  {
    bytes+= key.len + value.len;
    in_order= in_order && is_behind(key) && !last.assign(key.data, key.len);
    return ink_sorter_add(sorter.get(), key, value, error);
  }
  bool are_to_go() const { return in_order && bytes >= IN_ORDER_BYTES; }

private:
  Buffer last;
  uint64 bytes= 0;
  bool in_order;

  bool is_behind(ink_slice key) const
  {
    const size_t common= std::min(key.len, last.length());
    const int order= common ? memcmp(key.data, last.data(), common) : 0;
    return order ? order > 0 : key.len > last.length();
  }
};

/* Has the engine note what is written from now on. The server keeps writers away for that time;
   prepared transactions were waited for. */
int ha_inkstone::track_writers(IndexBuild *build)
{
  ink_error error;
  const ink_tree *rows= access.share->clustered();
  return track_changes(access.share->home(), rows, online_alter_log_max_size(), INK_NO_WRITERS, &build->tracker, &error) ? failure(error) : 0;
}

/* A snapshot, and which rows it sees otherwise than the one before. */
int ha_inkstone::take_changed(IndexBuild *build, OwnedTransaction *now, ink_changed_rows *changed)
{
  ink_error error;
  if (ink_take_changed_rows(build->tracker.get(), changed, &error))
    return failure(error);
  now->reset(changed->seen);
  if (!changed->too_many)
    return 0;
  my_printf_error(ER_INNODB_ONLINE_LOG_TOO_BIG,
                  "Creating index '%-.64s' required more than 'inkstone_online_alter_log_max_size' bytes of"
                  " modification log. Please try again.",
                  MYF(0), build->indexes.empty() ? "" : build->indexes.front()->key.name.str);
  return HA_ERR_GENERIC;
}

int ha_inkstone::begin_build(IndexBuild *build)
{
  ink_changed_rows changed;
  return take_changed(build, &build->seen, &changed);
}

/* Makes a tree, and fills it from the rows. */
int ha_inkstone::build_index(const KEY &altered_key, const std::vector<Field *> &columns, IndexBuild *build)
{
  build->indexes.emplace_back(new BuiltIndex);
  BuiltIndex &index= *build->indexes.back();
  index.key= altered_key;
  index.parts.assign(altered_key.key_part, altered_key.key_part + altered_key.user_defined_key_parts);
  index.is_computed= false;
  for (KEY_PART_INFO &part : index.parts)
  {
    part.field= columns[part.field->field_index];
    index.is_computed= index.is_computed || !part.field->stored_in_db();
  }
  index.key.key_part= index.parts.data();
  index.own_codec.init(index.key, &codec.clustered, codec.room);
  index.codec= &index.own_codec;
  /* A message about a duplicate shows values of the row as it still is: its NULLs are where they
     were. Where InnoDB copies, the server shows of a column's beginning what the Field of that
     length has. */
  for (KEY_PART_INFO &part : index.parts)
  {
    if (is_beginning(part) && !access.session->is_altered_in_place_by_innodb())
    {
      if (!(part.field= part.field->make_new_field(thd()->mem_root, table, false)))
        return HA_ERR_OUT_OF_MEM;
      part.field->field_length= part.length;
    }
    part.null_bit= part.field->null_ptr ? part.field->null_bit : 0;
    part.null_offset= part.field->null_ptr ? part.field->null_offset() : 0;
  }

  ink_error error;
  const std::string tree_name= std::string(BUILDING) + index.key.name.str;
  const ink_slice table_name= slice_of(access.share->name), name= slice_of(tree_name);
  ink_drop_tree(access.share->home(), table_name, name, nullptr);
  if (ink_create_tree(access.share->home(), table_name, name, &error) || open_table(table_name, &index.table, &error))
    return failure(error);
  index.tree= ink_table_find_tree(index.table.get(), name);
  return fill_index(index, build->seen.get());
}

int ha_inkstone::fill_index(BuiltIndex &index, const ink_transaction *seen)
{
  Progress progress= {thd(), 0, index.is_rows ? stats.records : 0};
  MY_BITMAP *saved= table->read_set;
  table->column_bitmaps_set_no_signal(&table->s->all_set, table->write_set);
  const int failed= fill_from_rows(index, seen, &progress);
  table->column_bitmaps_set_no_signal(saved, table->write_set);
  return failed;
}

/* Inserts the entries of all rows in order. Rows that keep their primary key come in it: they are
   inserted as they come, and nothing waits in a file to be sorted. */
int ha_inkstone::fill_from_rows(BuiltIndex &index, const ink_transaction *seen, Progress *progress)
{
  ink_error error;
  OwnedCursor cursor;
  EntriesInOrder entries(index.is_rows);
  if (entries.begin(access.share->home(), &error) ||
      open_cursor(seen, access.share->clustered(), ink_range(), ink_scan(), &cursor, &error))
    return failure(error);
  ink_row rows[Scan::BATCH];
  for (size_t count= 1; count;)
  {
    if (thd_kill_level(thd()) != THD_IS_NOT_KILLED)
      return HA_ERR_ABORTED_BY_USER;
    if (ink_cursor_fetch(cursor.get(), rows, Scan::BATCH, &count, &error))
      return failure(error);
    for (size_t i= 0; i < count; i++)
    {
      if (int failed= make_entry(index, rows[i]))
        return failed;
      if (entries.add(slice(buffers.entry.key), slice(buffers.entry.value), &error))
        return failure(error);
    }
    if (!entries.are_to_go())
      continue;
    if (int failed= insert_sorted(index, seen, entries.sorter.get(), progress))
      return failed;
    if (entries.begin(access.share->home(), &error))
      return failure(error);
  }
  return insert_sorted(index, seen, entries.sorter.get(), progress);
}

/* Makes the entry of a row, in buffers.entry. */
int ha_inkstone::make_entry(const BuiltIndex &index, ink_row row)
{
  if (!codec.room->restore(&row, cut_key))
    return HA_ERR_CRASHED;
  if (int failed= fill(row.key, row.value, table->record[0]))
    return failed;
  if (index.rebuild)
    return make_rebuilt_entry(index, row.key);
  if (index.is_computed)
    table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
  return buffers.row.take_key(row.key) || buffers.entry.put(*index.codec, table->record[0], buffers.row)
             ? HA_ERR_OUT_OF_MEM
             : 0;
}

/* Entries are inserted in transactions of their own: no other session sees the tree before the
   ALTER commits. */
int ha_inkstone::insert_sorted(BuiltIndex &index, const ink_transaction *seen, ink_sorter *sorter, Progress *progress)
{
  FillingTransaction writing;
  progress->total= std::max(progress->total, progress->done + ink_sorter_count(sorter));
  SortedInsert insert(index.tree, sorter, progress);
  while (!insert.is_over())
  {
    if (int failed= writing.begin(*access.session, access.share->home()))
      return failed;
    int failed= insert.next(writing.get());
    if (failed == HA_ERR_FOUND_DUPP_KEY)
      return show_duplicate(index, seen, insert.refused());
    if (failed || (failed= writing.count(thd(), insert.inserted_bytes())))
      return failed;
  }
  return writing.commit(thd());
}

/* Reports a row that a new unique index refuses. */
int ha_inkstone::show_duplicate(BuiltIndex &index, const ink_transaction *seen, ink_row entry)
{
  if (index.rebuild)
    return show_rebuilt_duplicate(index, entry);
  if (int failed= show_row_of(*index.codec, index.key, entry, seen))
    return failed;
  print_keydup_error(table, &index.key, MYF(0));
  return HA_ERR_FOUND_DUPP_KEY;
}

/* Shows the row that an entry belongs to, if it is there: what `seen` sees, or the statement. */
int ha_inkstone::show_row_of(const KeyCodec &of_index, const KEY &key, ink_row entry, const ink_transaction *seen)
{
  ink_slice of_row, row;
  size_t extras_at;
  bool found= false;
  RowImage &row_image= buffers.row;
  if (!codec.room->restore(&entry, cut_key) ||
      !of_index.row_key(entry.key, entry.value, scratch, &of_row, &extras_at) || row_image.take_key(of_row))
    return HA_ERR_CRASHED;
  const ink_slice image= slice(row_image.key);
  if (int failed= seen ? get_seen(seen, image, &row, &found)
                       : get(access.share->clustered(), image, &row_value, &row, &found))
    return failed;
  if (!found)
    return 0;
  const int failed= show_row(image, row);
  if (!failed && access.session->is_altered_in_place_by_innodb())
    cut_values(key);
  return failed;
}

int ha_inkstone::get_seen(const ink_transaction *seen, ink_slice image, ink_slice *row, bool *found)
{
  ink_error error;
  ink_slice key, rest;
  if (codec.room->tree_key(image, cut_key, &key))
    return HA_ERR_OUT_OF_MEM;
  if (ink_get(seen, access.share->clustered(), key, row_value.to_fill(), found, &error))
    return failure(error);
  *row= row_value.slice();
  return *found && codec.room->is_cut(image) && !KeyRoom::take_rest(row, &rest) ? HA_ERR_CRASHED : 0;
}

/* Exchanges the entries of rows that have changed since the last snapshot; how many they are. */
int ha_inkstone::catch_up(IndexBuild *build, size_t *count)
{
  OwnedTransaction now;
  ink_changed_rows changed;
  if (int failed= take_changed(build, &now, &changed))
    return failed;
  *count= changed.count;
  MY_BITMAP *saved= table->read_set;
  table->column_bitmaps_set_no_signal(&table->s->all_set, table->write_set);
  int failed= 0;
  for (size_t i= 0; !failed && i < build->indexes.size(); i++)
    failed= exchange_entries(*build->indexes[i], build->seen.get(), now.get(), changed);
  table->column_bitmaps_set_no_signal(saved, table->write_set);
  build->seen= std::move(now);
  return failed;
}

int ha_inkstone::catch_up_beside_writers(IndexBuild *build)
{
  size_t count= FEW_CHANGES;
  int failed= 0;
  for (int round= 0; !failed && count >= FEW_CHANGES && round < ROUNDS_MAX; round++)
    failed= catch_up(build, &count);
  return failed;
}

/* All old entries go before the first new one comes: values that two rows have exchanged are no
   duplicates. */
int ha_inkstone::exchange_entries(BuiltIndex &index, const ink_transaction *before, const ink_transaction *now,
                                  const ink_changed_rows &changed)
{
  ink_error error;
  OwnedSorter sorter;
  FillingTransaction writing;
  if (new_sorter(access.share->home(), &sorter, &error))
    return failure(error);
  for (size_t i= 0; i < changed.count; i++)
  {
    if (thd_kill_level(thd()) != THD_IS_NOT_KILLED)
      return HA_ERR_ABORTED_BY_USER;
    if (int failed= writing.begin(*access.session, access.share->home()))
      return failed;
    if (int failed= exchange_entry(index, before, now, changed.keys[i], writing.get(), sorter.get()))
      return failed;
    if (int failed= writing.count(thd(), changed.keys[i].len))
      return failed;
  }
  if (int failed= writing.commit(thd()))
    return failed;
  Progress progress= {thd(), 0, 0};
  return insert_sorted(index, now, sorter.get(), &progress);
}

/* Makes the entry that a row has at a snapshot, if it is there. */
int ha_inkstone::make_entry_of(const BuiltIndex &index, const ink_transaction *seen, ink_slice key, bool *found)
{
  ink_error error;
  if (ink_get(seen, access.share->clustered(), key, row_value.to_fill(), found, &error))
    return failure(error);
  return *found ? make_entry(index, {key, row_value.slice()}) : 0;
}

/* Deletes the old entry of a row, and adds the new one to those that will be inserted. */
int ha_inkstone::exchange_entry(const BuiltIndex &index, const ink_transaction *before, const ink_transaction *now,
                                ink_slice key, const ink_transaction *writing, ink_sorter *sorter)
{
  ink_error error;
  EntryImage &entry= buffers.entry, &old= buffers.old_entry;
  bool was_there, is_there, deleted;
  if (int failed= make_entry_of(index, before, key, &was_there))
    return failed;
  if (was_there && (old.key.assign(entry.key.data(), entry.key.length()) ||
                    old.value.assign(entry.value.data(), entry.value.length())))
    return HA_ERR_OUT_OF_MEM;
  if (int failed= make_entry_of(index, now, key, &is_there))
    return failed;
  if (was_there && is_there && same_bytes(slice(old.key), slice(entry.key)) &&
      same_bytes(slice(old.value), slice(entry.value)))
    return 0;
  if (was_there && ink_delete(writing, index.tree, slice(old.key), &deleted, &error))
    return failure(error);
  return is_there && ink_sorter_add(sorter, slice(entry.key), slice(entry.value), &error) ? failure(error) : 0;
}

/* The last round. The server keeps writers away; what is prepared and detached holds none of its
   locks, and would commit without an entry. */
int ha_inkstone::complete_build(IndexBuild *build)
{
  ink_error error;
  size_t count;
  if (int failed= wait_for_prepared(thd(), {access.share->name}))
    return failed;
  if (int failed= catch_up(build, &count))
    return failed;
  build->tracker.reset();
  build->seen.reset();
  /* A transaction may have begun meanwhile, and its snapshot would find few of the entries. */
  for (const auto &index : build->indexes)
    if (ink_complete_tree(access.share->home(), index->tree, &error))
      return failure(error);
  return 0;
}
