/* SPDX-License-Identifier: GPL-2.0-only */
/* ALTER TABLE without copying the table.

   Nothing of the rows changes: renamed columns, defaults, dropped checks (an added one must hold in
   every row: the server copies), virtual columns, stored columns that are moved or added, which old
   rows get from the table's facts (meta.h). Indexes are added and dropped as trees; readers go on
   meanwhile, writers wait.

   What a crash leaves is the old table or the new one. New trees are filled under names that no
   index has (BUILDING). Then one durable transaction notes the new definition's id, what added
   columns hold, and the plan: trees to drop and to rename. From there on the ALTER has happened:
   the server's ddl log asks check_version, and the next open of the table carries out what is left
   of the plan. What is left under a name of BUILDING then is of an ALTER that did not happen, and
   is dropped (TableShare::drop_unfinished).

   Partitions are altered by handlers of their own, and the first one commits for all, in one
   transaction. */
#include "ddl/alter.h"
#include "ddl/foreign_keys.h"
#include "ddl/tables.h"
#include "handler/ha_inkstone.h"
#include "handler/sorted_insert.h"
#include "ddl/page_options.h"
#include "ddl/partitions.h"
#include <algorithm>

/* The old column behind each of the new ones; nullptr: it is added. */
static std::vector<Field *> old_columns(Alter_inplace_info *info)
{
  std::vector<Field *> columns;
  List_iterator_fast<Create_field> created(info->alter_info->create_list);
  while (Create_field *column= created++)
    columns.push_back(column->field);
  return columns;
}

static const KEY *find_key(const TABLE *table, const LEX_CSTRING &name)
{
  for (uint i= 0; i < table->s->keys; i++)
    if (!strcmp(table->key_info[i].name.str, name.str))
      return &table->key_info[i];
  return nullptr;
}

/* Whether the clustered key is made of the same columns. */
static bool same_primary_key(const TABLE *before, const TABLE *after,
                             const std::vector<Field *> &columns)
{
  if (before->s->primary_key >= MAX_KEY || after->s->primary_key >= MAX_KEY)
    return before->s->primary_key == after->s->primary_key;
  const KEY &one= before->key_info[before->s->primary_key];
  const KEY &other= after->key_info[after->s->primary_key];
  if (one.user_defined_key_parts != other.user_defined_key_parts)
    return false;
  for (uint i= 0; i < one.user_defined_key_parts; i++)
    if (columns[other.key_part[i].field->field_index] !=
            before->field[one.key_part[i].field->field_index] ||
        one.key_part[i].length != other.key_part[i].length ||
        (one.key_part[i].key_part_flag ^ other.key_part[i].key_part_flag) & HA_REVERSE_SORT)
      return false;
  return true;
}

/* A column that old rows lack: what it holds in them must be a constant that is known now. */
static bool has_constant_default(const Field *field)
{
  if (field->vcol_info || (field->flags & AUTO_INCREMENT_FLAG) ||
      field->unireg_check == Field::NEXT_NUMBER || field->has_default_now_unireg_check() ||
      field->vers_sys_field())
    return false;
  return !field->default_value || field->default_value->expr->const_item();
}

/* What a default is that was not converted, or from a time to a day. InnoDB copies for all others,
   and the server's copy sees some of them otherwise. */
static bool is_taken_whole(int converted) { return converted == 0 || converted == 3; }

/* A NULL that becomes NOT NULL would be the time of its statement. InnoDB copies for it, before it
   comes to the defaults of columns behind it. */
static bool becomes_present(const Field *before, const Field *after)
{
  return before->real_maybe_null() && !after->real_maybe_null() && after->type() == MYSQL_TYPE_TIMESTAMP;
}

/* What the server's copy alone gives InnoDB's rows: that, and a default that differs from row to
   row. */
static bool takes_values_by_copying(const TABLE *altered, const Alter_inplace_info *info)
{
  if (info->alter_info->create_list.elements != altered->s->fields)
    return false;
  List_iterator_fast<Create_field> created(info->alter_info->create_list);
  for (uint i= 0; const Create_field *column= created++; i++)
  {
    const Field *field= altered->field[i];
    if (column->field ? becomes_present(column->field, field)
                      : field->stored_in_db() && field->default_value &&
                            (field->default_value->flags & ~uint(VCOL_SESSION_FUNC | VCOL_TIME_FUNC)))
      return true;
  }
  return false;
}

/* Evaluates the defaults, and warns of those that are cut. */
static bool adds_constants(TABLE *altered, const std::vector<Field *> &columns)
{
  MY_BITMAP *saved= dbug_tmp_use_all_columns(altered, &altered->write_set);
  bool adds= true;
  for (size_t i= 0; adds && i < columns.size(); i++)
  {
    Field *field= altered->field[i];
    if (columns[i])
      adds= !becomes_present(columns[i], field);
    else if (field->stored_in_db())
      adds= has_constant_default(field) && (!field->default_value || is_taken_whole(field->set_default()));
  }
  dbug_tmp_restore_column_map(&altered->write_set, saved);
  return adds;
}

/* An index on columns that are added by the same statement has no old column to read. */
static bool indexes_old_columns(const TABLE *altered, Alter_inplace_info *info,
                                const std::vector<Field *> &columns)
{
  for (uint i= 0; i < info->index_add_count; i++)
  {
    const KEY &named= info->key_info_buffer[info->index_add_buffer[i]];
    const KEY *key= find_key(altered, named.name);
    if (!key || (key->flags & (HA_FULLTEXT | HA_SPATIAL)) ||
        key->algorithm == HA_KEY_ALG_LONG_HASH || !strcmp(named.name.str, META_TREE))
      return false;
    for (uint part= 0; part < key->user_defined_key_parts; part++)
      if (!columns[key->key_part[part].field->field_index])
        return false;
  }
  return true;
}

/* A copy looks at constraints of added columns. */
static bool adds_checks(const TABLE *altered, const std::vector<Field *> &columns)
{
  for (size_t i= 0; i < columns.size(); i++)
    if (!columns[i] && altered->field[i]->check_constraint)
      return true;
  return false;
}

/* Longer VARCHARs, more members of an ENUM: the packed bytes stay as they are, an index's may
   not. */
static bool resizes_only_unindexed(const TABLE *altered, const std::vector<Field *> &columns)
{
  for (size_t i= 0; i < columns.size(); i++)
    if (columns[i] && columns[i]->field_length != altered->field[i]->field_length &&
        (altered->field[i]->flags & PART_KEY_FLAG))
      return false;
  return true;
}

enum_alter_inplace_result
ha_inkstone::check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info)
{
  const alter_table_operations wanted= info->handler_flags;
  const alter_table_operations of_innodb= wanted_of_innodb(table, info);
  /* The table is open and not locked: a partition may know another connection, that had it last. */
  if (use_session(ha_thd()))
  {
    my_error(ER_OUT_OF_RESOURCES, MYF(0));
    return HA_ALTER_ERROR;
  }
  note_counter(takes_values_by_copying(altered, info) ? of_innodb | ALTER_STORED_COLUMN_TYPE : of_innodb, altered,
               info);
  if (access.share->is_discarded())
  {
    warn_of_discarded(thd(), table);
    if (makes_anew_in_innodb(of_innodb, altered, info))
    {
      access.refuse_discarded();
      return HA_ALTER_ERROR;
    }
  }
  /* Copying makes all indexes anew. */
  if (is_outdated())
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (info->error_if_not_empty || leaves_rows_out(info) || refused_option(thd(), info->create_info) ||
      table->s->tmp_table != NO_TMP_TABLE || altered->versioned() != table->versioned() || altered->s->long_unique_table)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  try
  {
    if (alters_pages(thd(), table, info->create_info))
      return HA_ALTER_INPLACE_NOT_SUPPORTED;
    const std::vector<Field *> columns= old_columns(info);
    /* Defaults come first: what InnoDB warns of, which makes more tables anew in place, is said
       where the server copies here, too. */
    if (columns.size() != altered->s->fields ||
        (may_rebuild_in_innodb(of_innodb) && !adds_constants(altered, columns)) ||
        (wanted & ~(NO_CHANGE_OF_ROWS | INDEX_CHANGES | ALTER_ADD_STORED_BASE_COLUMN | ALTER_PARTITIONED)) ||
        !same_primary_key(table, altered, columns) || !indexes_old_columns(altered, info, columns) ||
        !resizes_only_unindexed(altered, columns) ||
        (reserved_after(of_innodb, altered, info) == NOTED && adds_checks(altered, columns)))
      return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  catch (const std::bad_alloc &)
  {
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  if (int refused= refuse_altered_foreign_keys(thd(), access.share->name, altered, info))
  {
    if (!thd()->is_error())
      print_error(refused, MYF(0));
    return HA_ALTER_ERROR;
  }
  return info->index_add_count ? HA_ALTER_INPLACE_NOCOPY_LOCK : HA_ALTER_INPLACE_INSTANT;
}

/* Whether EXCHANGE PARTITION is about tables whose rows lie by different keys, of which the server
   compares the names alone: a key that became NOT NULL in place is not the clustered one, in a new
   table it is. Neither could be opened afterwards. */
static bool exchanges_other_rows(THD *thd, const TABLE *table)
{
  if (!(thd->lex->alter_info.partition_flags & ALTER_PARTITION_EXCHANGE))
    return false;
  const TABLE *partitioned= thd->lex->query_tables->table;
  auto clustered= [](const TABLE *t) {
    return t->s->primary_key < MAX_KEY ? t->key_info[t->s->primary_key].name.str : "";
  };
  return strcmp(clustered(table), clustered(partitioned)) != 0;
}

bool ha_inkstone::check_if_incompatible_data(HA_CREATE_INFO *info, uint table_changes)
{
  bool same= table_changes == IS_EQUAL_YES &&
             !((info->used_fields & HA_CREATE_USED_AUTO) && info->auto_increment_value) &&
             !exchanges_other_rows(thd(), table);
  return same ? COMPATIBLE_DATA_YES : COMPATIBLE_DATA_NO;
}

/* What is made before the statement commits. */
struct AlterContext : public inplace_alter_handler_ctx
{
  explicit AlterContext(ha_inkstone *handler) : handler(handler) {}
  ha_inkstone *handler;
  AlterPlan plan;
  std::vector<std::string> built;
  std::vector<AddedColumn> added;
  std::vector<uint16> order;
};

static bool report(THD *thd, handler *handler, int failed)
{
  if (failed)
    handler->print_error(failed, MYF(0));
  return failed != 0;
}

bool ha_inkstone::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  AlterContext *context= new (thd()->mem_root) AlterContext(this);
  info->handler_ctx= context;
  if (!context)
    return report(thd(), this, HA_ERR_OUT_OF_MEM);
  /* Defaults are of rows to come, and a check that goes looks at none: as in InnoDB, no transaction
     that has changed rows is waited for. */
  const bool concerns_rows=
      info->handler_flags & ~(ALTER_COLUMN_DEFAULT | ALTER_DROP_CHECK_CONSTRAINT);
  if (int failed= concerns_rows ? wait_for_prepared(thd(), {access.share->name}) : 0)
    return report(thd(), this, failed);
  for (uint i= 0; i < info->index_drop_count; i++)
    context->plan.drop(info->index_drop_buffer[i]->name.str);
  for (const auto &pair : info->rename_keys)
    context->plan.rename(pair.old_key->name.str, std::string(BUILDING) + pair.new_key->name.str);
  for (const auto &pair : info->rename_keys)
    context->plan.rename(std::string(BUILDING) + pair.new_key->name.str, pair.new_key->name.str);
  for (uint i= 0; i < info->index_add_count; i++)
  {
    std::string name= info->key_info_buffer[info->index_add_buffer[i]].name.str;
    context->built.push_back(name);
    context->plan.rename(BUILDING + name, name);
  }
  List_iterator_fast<Alter_drop> dropped(info->alter_info->drop_list);
  while (const Alter_drop *drop= dropped++)
    if (drop->type == Alter_drop::FOREIGN_KEY)
      context->plan.drop_foreign_key(drop->name);
  List_iterator_fast<Create_field> columns(info->alter_info->create_list);
  while (const Create_field *column= columns++)
    if (column->field && strcmp(column->field->field_name.str, column->field_name.str))
      context->plan.rename_column(column->field->field_name.str, column->field_name.str);
  context->order= altered_order(altered, info);
  return report(thd(), this, find_added(altered, info, &context->added));
}

/* The order of columns in rows: old ones stay where they are, added ones follow. Empty: the order
   of the table. */
std::vector<uint16> ha_inkstone::altered_order(const TABLE *altered, Alter_inplace_info *info) const
{
  const std::vector<Field *> columns= old_columns(info), stored= stored_columns(table);
  const std::vector<Field *> new_stored= stored_columns(altered);
  std::vector<uint16> places(table->s->fields), order;
  for (size_t i= 0; i < new_stored.size(); i++)
    if (const Field *old= columns[new_stored[i]->field_index])
      places[old->field_index]= static_cast<uint16>(i);
  for (size_t i= 0; i < stored.size(); i++)
  {
    const size_t at= access.share->column_order().empty() ? i : access.share->column_order()[i];
    order.push_back(places[stored[at]->field_index]);
  }
  for (size_t i= 0; i < new_stored.size(); i++)
    if (!columns[new_stored[i]->field_index])
      order.push_back(static_cast<uint16>(i));
  return std::is_sorted(order.begin(), order.end()) ? std::vector<uint16>() : order;
}

int ha_inkstone::find_added(TABLE *altered, Alter_inplace_info *info,
                            std::vector<AddedColumn> *added)
{
  const std::vector<Field *> columns= old_columns(info);
  Buffer packed;
  memcpy(altered->record[0], altered->s->default_values, altered->s->reclength);
  for (size_t i= 0; i < columns.size(); i++)
  {
    Field *field= altered->field[i];
    if (columns[i] || !field->stored_in_db())
      continue;
    if (field->default_value)
    {
      /* Its warnings were given when the ALTER was checked. */
      Dummy_error_handler silence;
      thd()->push_internal_handler(&silence);
      MY_BITMAP *saved= dbug_tmp_use_all_columns(altered, &altered->write_set);
      bool failed= !is_taken_whole(field->set_default());
      thd()->pop_internal_handler();
      dbug_tmp_restore_column_map(&altered->write_set, saved);
      if (failed)
        return HA_ERR_GENERIC;
    }
    AddedColumn column;
    column.null= field->real_maybe_null() && field->is_null();
    packed.clear();
    if (!column.null && put_packed(packed, field, altered->record[0]))
      return HA_ERR_OUT_OF_MEM;
    column.packed.assign(packed.data(), packed.data() + packed.length());
    added->push_back(column);
  }
  return 0;
}

bool ha_inkstone::inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  AlterContext *context= static_cast<AlterContext *>(info->handler_ctx);
  if (context->built.empty())
    return false;
  thd_progress_init(thd(), static_cast<uint>(context->built.size()));
  const bool failed= build_indexes(altered, info, *context);
  thd_progress_end(thd());
  return failed;
}

bool ha_inkstone::build_indexes(TABLE *altered, Alter_inplace_info *info, const AlterContext &context)
{
  for (const std::string &name : context.built)
  {
    const KEY *key= find_key(altered, {name.data(), name.size()});
    if (int failed= build_index(*key, old_columns(info)))
    {
      if (failed != HA_ERR_FOUND_DUPP_KEY)
        print_error(failed, MYF(0));
      return true;
    }
    thd_progress_next_stage(thd());
  }
  return false;
}

/* The beginning of a CHAR or BINARY: a message about a duplicate leaves out blanks and zeroes at
   the end of what there is of a value. */
static bool is_beginning(const KEY_PART_INFO &part)
{
  return (part.key_part_flag & HA_PART_KEY_SEG) && part.field->real_type() == MYSQL_TYPE_STRING;
}

/* In place InnoDB shows what its entry has. */
static void cut_values(const KEY &key)
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

/* Fills a new tree from the rows. Writers are kept away by the server. */
int ha_inkstone::build_index(const KEY &altered_key, const std::vector<Field *> &columns)
{
  KEY key= altered_key;
  std::vector<KEY_PART_INFO> parts(altered_key.key_part,
                                   altered_key.key_part + altered_key.user_defined_key_parts);
  bool computed= false;
  for (KEY_PART_INFO &part : parts)
  {
    part.field= columns[part.field->field_index];
    computed= computed || !part.field->stored_in_db();
  }
  key.key_part= parts.data();
  KeyCodec of_index;
  of_index.init(key, &codec.clustered, codec.room);
  /* A message about a duplicate shows values of the row as it still is: its NULLs are where they
     were. Where InnoDB copies, the server shows of a column's beginning what the Field of that
     length has. */
  for (KEY_PART_INFO &part : parts)
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
  OwnedTable opened;
  const std::string tree_name= std::string(BUILDING) + key.name.str;
  const ink_slice table_name= slice_of(access.share->name), name= slice_of(tree_name);
  ink_drop_tree(database, table_name, name, nullptr);
  if (ink_create_tree(database, table_name, name, &error) || open_table(table_name, &opened, &error))
    return failure(error);
  const ink_tree *tree= ink_table_find_tree(opened.get(), name);
  if (int failed= fill_index(of_index, key, tree, computed))
    return failed;
  /* A transaction may have begun meanwhile, and its snapshot would find few of the entries. */
  return ink_complete_tree(database, tree, &error) ? failure(error) : 0;
}

int ha_inkstone::fill_index(const KeyCodec &of_index, KEY &key, const ink_tree *tree, bool computed)
{
  ink_error error;
  OwnedSorter sorter;
  if (new_sorter(&sorter, &error))
    return failure(error);
  MY_BITMAP *saved= table->read_set;
  table->column_bitmaps_set_no_signal(&table->s->all_set, table->write_set);
  int failed= gather_entries(of_index, computed, sorter.get());
  table->column_bitmaps_set_no_signal(saved, table->write_set);
  return failed ? failed : insert_sorted(of_index, key, tree, sorter.get());
}

/* Adds the entries of all rows to those that are to be sorted. */
int ha_inkstone::gather_entries(const KeyCodec &of_index, bool computed, ink_sorter *sorter)
{
  ink_error error;
  OwnedTransaction reading;
  OwnedCursor cursor;
  if (begin(INK_READ_COMMITTED, access.session->interrupt.get(), &reading, &error) ||
      open_cursor(reading.get(), access.share->clustered(), ink_range(), ink_scan(), &cursor, &error))
    return failure(error);
  ink_row rows[Scan::BATCH];
  for (size_t count= 1; count;)
  {
    if (thd_kill_level(thd()) != THD_IS_NOT_KILLED)
      return HA_ERR_ABORTED_BY_USER;
    if (ink_cursor_fetch(cursor.get(), rows, Scan::BATCH, &count, &error))
      return failure(error);
    for (size_t i= 0; i < count; i++)
      if (int failed= add_entry(of_index, rows[i], computed, sorter))
        return failed;
  }
  return 0;
}

int ha_inkstone::add_entry(const KeyCodec &of_index, ink_row row, bool computed, ink_sorter *sorter)
{
  ink_error error;
  if (!codec.room->restore(&row, cut_key))
    return HA_ERR_CRASHED;
  if (int failed= fill(row.key, row.value, table->record[0]))
    return failed;
  if (computed)
    table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
  EntryImage &entry= buffers.entry;
  if (buffers.row.take_key(row.key) || entry.put(of_index, table->record[0], buffers.row))
    return HA_ERR_OUT_OF_MEM;
  return ink_sorter_add(sorter, slice(entry.key), slice(entry.value), &error) ? failure(error) : 0;
}

/* Entries are inserted in transactions of their own: no other session sees the tree before the
   ALTER commits. */
int ha_inkstone::insert_sorted(const KeyCodec &of_index, KEY &key, const ink_tree *tree, ink_sorter *sorter)
{
  FillingTransaction writing;
  Progress progress= {thd(), 0, ink_sorter_count(sorter)};
  SortedInsert insert(tree, sorter, &progress);
  while (!insert.is_over())
  {
    if (int failed= writing.begin(*access.session))
      return failed;
    int failed= insert.next(writing.get());
    if (failed == HA_ERR_FOUND_DUPP_KEY)
      return show_duplicate(of_index, key, insert.refused());
    if (failed || (failed= writing.count(thd(), insert.inserted_bytes())))
      return failed;
  }
  return writing.commit(thd());
}

/* Reports a row that a new unique index refuses. */
int ha_inkstone::show_duplicate(const KeyCodec &of_index, KEY &key, ink_row entry)
{
  if (int failed= show_row_of(of_index, key, entry))
    return failed;
  print_keydup_error(table, &key, MYF(0));
  return HA_ERR_FOUND_DUPP_KEY;
}

/* Shows the row that an entry belongs to, if it is there. */
int ha_inkstone::show_row_of(const KeyCodec &of_index, const KEY &key, ink_row entry)
{
  ink_slice of_row, row;
  size_t extras_at;
  bool found= false;
  RowImage &row_image= buffers.row;
  if (!codec.room->restore(&entry, cut_key) ||
      !of_index.row_key(entry.key, entry.value, scratch, &of_row, &extras_at) || row_image.take_key(of_row))
    return HA_ERR_CRASHED;
  if (int failed= get(access.share->clustered(), slice(row_image.key), &row_value, &row, &found))
    return failed;
  if (!found)
    return 0;
  const int failed= show_row(slice(row_image.key), row);
  if (!failed && access.session->is_altered_in_place_by_innodb())
    cut_values(key);
  return failed;
}

bool ha_inkstone::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit)
{
  AlterContext *context= static_cast<AlterContext *>(info->handler_ctx);
  if (!context)
    return false;
  if (!commit)
  {
    for (const std::string &name : context->built)
    {
      const std::string tree= BUILDING + name;
      ink_drop_tree(database, slice_of(access.share->name), slice_of(tree), nullptr);
    }
    return false;
  }
  int failed;
  try
  {
    std::vector<AlterContext *> contexts;
    for (inplace_alter_handler_ctx **of= info->group_commit_ctx; of && *of; of++)
      contexts.push_back(static_cast<AlterContext *>(*of));
    if (contexts.empty())
      contexts.push_back(context);
    failed= commit_altered(contexts, altered, info);
  }
  catch (const std::bad_alloc &)
  {
    failed= HA_ERR_OUT_OF_MEM;
  }
  if (!failed)
    info->group_commit_ctx= nullptr;
  return report(thd(), this, failed);
}

int ha_inkstone::commit_altered(const std::vector<AlterContext *> &contexts, TABLE *altered,
                                Alter_inplace_info *info)
{
  std::vector<TableShare::Change> changes;
  int failed= 0;
  for (AlterContext *context : contexts)
  {
    ha_inkstone *handler= context->handler;
    handler->scan.close();
    if (!failed && table->found_next_number_field)
      failed= handler->alter_counter(altered, info);
    changes.push_back({handler->access.share, &context->plan, &context->added, &context->order});
  }
  return failed ? failed
                : TableShare::alter(thd(), changes, altered->s->tabledef_version, altered->s);
}

/* Of a partitioned table the server gives the name of the whole. Its partitions are altered
   together: any of them has the answer. */
int check_version(handlerton *, const char *path, const LEX_CUSTRING *version, ulonglong)
{
  TableName name(path);
  const std::string table= name.text();
  std::vector<std::string> names;
  if (partitions_of(nullptr, table, &names))
    return 1;
  names.push_back(table);
  for (const std::string &each : names)
  {
    std::vector<uchar> found;
    if (!read_version(slice_of(each), &found) && same_bytes(slice_of(found), {version->str, version->length}))
      return 0;
  }
  return 1;
}
