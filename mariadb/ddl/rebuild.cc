/* SPDX-License-Identifier: GPL-2.0-only */
/* Rows in a new definition (ddl/rebuild.h), and what the handler does with them: all of a
   snapshot's first, then those that writers have changed, as with new indexes (index_build.h). */
#include "ddl/rebuild.h"
#include "ddl/index_build.h"
#include "ddl/page_options.h"
#include "ddl/tables.h"
#include "handler/ha_inkstone.h"
#include <algorithm>

/* Long values are borrowed from the row that was read. BIT may have bits elsewhere. */
static bool has_same_bytes(const Field *from, const Field *to)
{
  Packing one, other;
  return from->real_type() == to->real_type() && from->real_type() != MYSQL_TYPE_BIT &&
         from->pack_length() == to->pack_length() && from->charset() == to->charset() && Packing::of(from, &one) &&
         Packing::of(to, &other) && one.is_sized_as(other);
}

Rebuild::Rebuild(TABLE *form, const std::vector<Field *> &before)
    : altered(form), room(ink_key_bytes_max(database))
{
  codec.init(form, room);
  codec.use_layout(form, std::make_shared<RowLayout>(), 1);
  for (uint i= 0; i < form->s->fields; i++)
    if (before[i] && form->field[i]->stored_in_db())
      columns.push_back({before[i], form->field[i], has_same_bytes(before[i], form->field[i])});
}

bool Rebuild::take_row(handler *reader, ink_slice id, bool computes, RowImage *row)
{
  uchar *const record= altered->record[0];
  for (const Column &column : columns)
  {
    const bool null= column.from->is_null_in_record(column.from->table->record[0]);
    if (column.to->real_maybe_null())
      set_null_in_record(column.to, record, null);
    if (null)
      continue;
    if (column.is_same)
      memcpy(column.to->ptr, column.from->ptr, column.from->pack_length());
    else
      column.from->save_in_field(column.to);
  }
  if (computes)
    altered->update_virtual_fields(reader, VCOL_UPDATE_FOR_READ);
  return row->put(codec, record, id.data);
}

bool Rebuild::show_row(ink_slice key, ink_slice value, Buffer &scratch)
{
  ink_row row= {key, value};
  return room.restore(&row, scratch) && codec.clustered.restore(row.key, altered->record[0]) &&
         codec.rows.get(row.value, nullptr, altered->record[0]);
}

/* Makes the new table, empty. The server keeps writers away for that time. */
int ha_inkstone::begin_rebuild(TABLE *altered, Alter_inplace_info *info, const std::vector<Field *> &columns,
                               IndexBuild *build)
{
  ink_error error;
  PageOptions pages;
  std::vector<ink_slice> trees;
  build->rebuild.reset(new Rebuild(altered, columns));
  Rebuild &rebuild= *build->rebuild;
  page_options_for(thd(), info->create_info, &pages);
  for (uint i= 0; i < altered->s->keys; i++)
    if (i != altered->s->primary_key)
      trees.push_back(slice_of(altered->key_info[i].name));
  trees.push_back(INK_STR(META_TREE));
  const std::string name= access.share->name + REPLACEMENT;
  if (int failed= create_table(thd(), slice_of(name), trees, pages, {}))
    return failed;
  rebuild.made.name= name;
  altered->column_bitmaps_set_no_signal(&altered->s->all_set, &altered->s->all_set);
  return open_table(slice_of(name), &rebuild.made.table, &error) ? failure(error) : track_writers(build);
}

static bool has_virtual_part(const KEY &key)
{
  const KEY_PART_INFO *const parts= key.key_part, *const end= parts + key.user_defined_key_parts;
  return std::any_of(parts, end, [](const KEY_PART_INFO &part) { return !part.field->stored_in_db(); });
}

/* A tree of the new table. */
static std::unique_ptr<BuiltIndex> rebuilt_index(Rebuild *rebuild, uint number)
{
  const TABLE *altered= rebuild->altered;
  std::unique_ptr<BuiltIndex> index(new BuiltIndex);
  index->rebuild= rebuild;
  index->is_rows= number == altered->s->primary_key || number == altered->s->keys;
  if (number < altered->s->keys)
    index->key= altered->key_info[number];
  else
  {
    index->key= KEY();
    index->key.name= primary_key_name;
  }
  index->codec= number < altered->s->keys ? &rebuild->codec.indexes[number] : &rebuild->codec.clustered;
  index->tree= index->is_rows ? rebuild->rows() : ink_table_find_tree(rebuild->made.table.get(), slice_of(index->key.name));
  index->is_computed= !index->is_rows && has_virtual_part(index->key);
  return index;
}

/* Fills the new table: rows, then entries. */
int ha_inkstone::fill_rebuilt(IndexBuild *build)
{
  const TABLE_SHARE *definition= build->rebuild->altered->s;
  std::vector<uint> numbers= {definition->primary_key < MAX_KEY ? definition->primary_key : definition->keys};
  for (uint i= 0; i < definition->keys; i++)
    if (i != definition->primary_key)
      numbers.push_back(i);
  thd_progress_init(thd(), static_cast<uint>(numbers.size()));
  int failed= begin_build(build);
  for (size_t i= 0; !failed && i < numbers.size(); i++)
  {
    build->indexes.push_back(rebuilt_index(build->rebuild.get(), numbers[i]));
    failed= fill_index(*build->indexes.back(), build->seen.get());
    thd_progress_next_stage(thd());
  }
  if (!failed)
    failed= catch_up_beside_writers(build);
  thd_progress_end(thd());
  return failed;
}

/* The row that is in the record, or its entry, in buffers.entry. `key`: of the row as it is. */
int ha_inkstone::make_rebuilt_entry(const BuiltIndex &index, ink_slice key)
{
  ink_slice in_tree;
  RowImage &row= buffers.row;
  EntryImage &entry= buffers.entry;
  if (index.rebuild->take_row(this, key, index.is_computed, &row))
    return HA_ERR_OUT_OF_MEM;
  if (!index.is_rows)
    return entry.put(*index.codec, index.rebuild->altered->record[0], row) ? HA_ERR_OUT_OF_MEM : 0;
  return row.tree_key(index.rebuild->codec, &in_tree) || entry.key.assign(in_tree.data, in_tree.len) ||
                 entry.value.assign(row.value.data(), row.value.length())
             ? HA_ERR_OUT_OF_MEM
             : 0;
}

/* Reports a row that a unique key of the new definition refuses. */
int ha_inkstone::show_rebuilt_duplicate(BuiltIndex &index, ink_row entry)
{
  ink_error error;
  Rebuild &rebuild= *index.rebuild;
  ink_slice of_row, in_tree= entry.key, value= entry.value;
  size_t extras_at;
  bool found= true;
  if (!index.is_rows)
  {
    RowImage &row= buffers.row;
    if (!rebuild.codec.room->restore(&entry, cut_key) ||
        !index.codec->row_key(entry.key, entry.value, scratch, &of_row, &extras_at) || row.take_key(of_row) ||
        row.tree_key(rebuild.codec, &in_tree))
      return HA_ERR_CRASHED;
    if (ink_read_row(access.share->home(), rebuild.rows(), in_tree, row_value.to_fill(), &found, &error))
      return failure(error);
    value= row_value.slice();
  }
  if (found && !rebuild.show_row(in_tree, value, cut_key))
    return HA_ERR_CRASHED;
  if (access.session->is_altered_in_place_by_innodb())
    cut_values(index.key);
  print_keydup_error(rebuild.altered, &index.key, MYF(0));
  return HA_ERR_FOUND_DUPP_KEY;
}
