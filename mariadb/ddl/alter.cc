/* SPDX-License-Identifier: GPL-2.0-only */
/* ALTER TABLE without copying the table.

   Nothing of the rows changes: renamed columns, defaults, dropped checks (an added one must hold in
   every row: the server copies), virtual columns, stored columns that are moved, added or dropped,
   that may be NULL from now on, or longer, for which the table's facts say how old rows have them
   (codec/row_layout.h). Indexes are added and dropped as trees; readers and
   writers go on meanwhile (ddl/index_build.h).

   What a crash leaves is the old table or the new one. New trees are filled under names that no
   index has (BUILDING). Then one durable transaction notes the new definition's id, what added
   columns hold, and the plan: trees to drop and to rename. From there on the ALTER has happened:
   the server's ddl log asks check_version, and the next open of the table carries out what is left
   of the plan. What is left under a name of BUILDING then is of an ALTER that did not happen, and
   is dropped (TableShare::drop_unfinished).

   What changes entries of indexes that stay, or the primary key, makes the table anew in another
   one of the engine, beside writers, which takes its name in the end (ddl/rebuild.h).

   Partitions are altered by handlers of their own, and the first one commits for all, in one
   transaction. */
#include "ddl/alter.h"
#include "ddl/foreign_keys.h"
#include "ddl/tables.h"
#include "handler/ha_inkstone.h"
#include "ddl/index_build.h"
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

static bool is_whole(const KEY_PART_INFO &part) { return part.length == part.field->key_length(); }

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
        (one.key_part[i].length != other.key_part[i].length && !(is_whole(one.key_part[i]) && is_whole(other.key_part[i]))) ||
        (one.key_part[i].key_part_flag ^ other.key_part[i].key_part_flag) & HA_REVERSE_SORT)
      return false;
  return true;
}

/* A default that is made of the row's other columns, or that is another one each time. */
static bool differs_by_row(const Field *field)
{
  return field->default_value->flags & ~uint(VCOL_SESSION_FUNC | VCOL_TIME_FUNC);
}

/* A column that old rows lack: what it holds in them must be a constant that is known now. */
static bool has_constant_default(const Field *field)
{
  if (field->vcol_info || (field->flags & AUTO_INCREMENT_FLAG) ||
      field->unireg_check == Field::NEXT_NUMBER || field->vers_sys_field())
    return false;
  return !field->default_value || !differs_by_row(field);
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
                      : field->stored_in_db() && field->default_value && differs_by_row(field))
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

/* An index on columns that are added or longer by the same statement has no old column to read. */
static bool indexes_old_columns(const TABLE *altered, Alter_inplace_info *info,
                                const std::vector<Field *> &columns)
{
  for (uint i= 0; i < info->index_add_count; i++)
  {
    const KEY *key= find_key(altered, info->key_info_buffer[info->index_add_buffer[i]].name);
    if (!key)
      return false;
    for (uint part= 0; part < key->user_defined_key_parts; part++)
    {
      const uint column= key->key_part[part].field->field_index;
      if (!columns[column] || columns[column]->field_length != altered->field[column]->field_length)
        return false;
    }
  }
  return true;
}

/* Of the others the server itself looks for duplicates, or CREATE refuses them. */
static bool has_own_indexes(const TABLE *altered)
{
  const KEY *const keys= altered->key_info, *const end= keys + altered->s->keys;
  return std::all_of(keys, end, [](const KEY &key) {
    return !(key.flags & (HA_FULLTEXT | HA_SPATIAL)) && key.algorithm != HA_KEY_ALG_LONG_HASH &&
           !key.without_overlaps && strcmp(key.name.str, META_TREE);
  });
}

/* A copy looks at constraints of added columns. */
static bool adds_checks(const TABLE *altered, const std::vector<Field *> &columns)
{
  for (size_t i= 0; i < columns.size(); i++)
    if (!columns[i] && altered->field[i]->check_constraint)
      return true;
  return false;
}

/* Whether the old column's packed values can be read as the new one's, and an index's entries that
   have it stay as they are: those say of a column that may be NULL whether it is, and have values
   of texts with their length. */
struct Readable
{
  bool rows, entries;

  Readable(const Field *before, const Field *after)
  {
    Packing packing, new_packing;
    const bool known= Packing::of(before, &packing);
    if (!after)
    {
      rows= known && !(before->flags & AUTO_INCREMENT_FLAG);
      entries= true;
      return;
    }
    rows= Packing::of(after, &new_packing) == known && (known || packing == new_packing) &&
          !(packing.is_nullable && !new_packing.is_nullable);
    entries= packing == new_packing || !((before->flags | after->flags) & PART_KEY_FLAG);
  }
};

/* Of all columns. */
static Readable keep_readable(const TABLE *table, const TABLE *altered, const std::vector<Field *> &columns)
{
  Readable all(table->field[0], table->field[0]);
  all.rows= all.entries= true;
  for (Field **field= table->field; *field; field++)
  {
    if (!(*field)->stored_in_db())
      continue;
    const auto found= std::find(columns.begin(), columns.end(), *field);
    const Readable each(*field, found == columns.end() ? nullptr : altered->field[found - columns.begin()]);
    all.rows= all.rows && each.rows;
    all.entries= all.entries && each.entries;
  }
  return all;
}

/* What foreign keys say of a column that is dropped the server knows where it copies. */
static bool drops_referring(THD *thd, const std::string &name, const TABLE *table, const std::vector<Field *> &columns)
{
  std::vector<std::string> referring;
  if (find_referring_columns(thd, name, &referring))
    return true;
  for (Field **field= table->field; *field; field++)
    if (std::find(columns.begin(), columns.end(), *field) == columns.end())
      for (const std::string &column : referring)
        if (same_column(column.c_str(), (*field)->field_name.str))
          return true;
  return false;
}

/* Longer strings, with InnoDB's limit: one byte says how long its values are up to 127 bytes, and
   up to 255 if none may be longer. */
static bool grows(const Field &before, const Column_definition &after, bool redundant)
{
  return after.length >= before.field_length &&
         (after.length == before.field_length || redundant || before.field_length <= 127 ||
          before.field_length > 255 || after.length <= 255);
}

/* What InnoDB does in place: a VARCHAR may become longer; a character set may become one that has
   the same bytes for the same characters, and a collation another one, which in keys is another
   order. */
bool ha_inkstone::can_convert_nocopy(const Field &field, const Column_definition &after) const
{
  const bool redundant= table->s->row_type == ROW_TYPE_REDUNDANT;
  if (after.type_handler() != field.type_handler() || field.compression_method() || after.compression_method())
    return false;
  const bool recodes= after.charset != field.charset();
  if (recodes && ((field.flags & PART_KEY_FLAG) || !Charset(field.charset()).encoding_allows_reinterpret_as(after.charset)))
    return false;
  switch (field.real_type())
  {
  case MYSQL_TYPE_VARCHAR:
    return after.char_length >= field.char_length() && grows(field, after, redundant);
  case MYSQL_TYPE_STRING:
    return field.type_handler() == &type_handler_string && after.char_length == field.char_length() &&
           (after.length == field.field_length ||
            (!redundant && field.charset()->mbminlen != field.charset()->mbmaxlen));
  case MYSQL_TYPE_BLOB:
    return recodes && after.length == field.field_length;
  default:
    return false;
  }
}

/* A key of a whole column that grows stays as it is: images of values do not tell how long others
   may be. */
Compare_keys ha_inkstone::compare_key_parts(const Field &field, const Column_definition &after,
                                            const KEY_PART_INFO &old_part, const KEY_PART_INFO &new_part) const
{
  const bool is_equal= field.is_equal(after);
  if (!is_equal && !can_convert_nocopy(field, after))
    return Compare_keys::NotEqual;
  const bool was_whole= old_part.length == field.key_length();
  const bool is_whole= new_part.length == (is_equal ? field.key_length() : after.length);
  if (was_whole != is_whole || (!is_whole && old_part.length != new_part.length))
    return Compare_keys::NotEqual;
  return old_part.length == new_part.length ? Compare_keys::Equal : Compare_keys::EqualButKeyPartLength;
}

enum_alter_inplace_result
ha_inkstone::check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info)
{
  const alter_table_operations of_innodb= wanted_of_innodb(info);
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
  enum_alter_inplace_result way;
  try
  {
    way= alters_pages(thd(), table, info->create_info) ? HA_ALTER_INPLACE_NOT_SUPPORTED : way_to_alter(altered, info);
  }
  catch (const std::bad_alloc &)
  {
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  if (way == HA_ALTER_INPLACE_NOT_SUPPORTED)
    return way;
  if (int refused= refuse_altered_foreign_keys(thd(), access.share->name, altered, info))
  {
    if (!thd()->is_error())
      print_error(refused, MYF(0));
    return HA_ALTER_ERROR;
  }
  return way;
}

/* Why an ALTER is not done in place, in InnoDB's words, where the server has any. */
static const char *reason_to_copy(THD *thd, alter_table_operations wanted, bool numbers_rows, bool loses_key)
{
  if (wanted & ALTER_STORED_COLUMN_TYPE)
    return ER_THD(thd, ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_COLUMN_TYPE);
  if ((wanted & ALTER_ADD_FOREIGN_KEY) && checks_foreign_keys(thd))
    return ER_THD(thd, ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_FK_CHECK);
  if (numbers_rows)
    return ER_THD(thd, ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_AUTOINC);
  return loses_key ? ER_THD(thd, ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_NOPK) : nullptr;
}

/* The way that does least. */
enum_alter_inplace_result ha_inkstone::way_to_alter(const TABLE *altered, Alter_inplace_info *info)
{
  const alter_table_operations wanted= info->handler_flags, of_innodb= wanted_of_innodb(info);
  const std::vector<Field *> columns= old_columns(info);
  /* Rows that lose their primary key get ids that no writer beside the ALTER could know. */
  const bool loses_key= altered->s->primary_key >= MAX_KEY && !codec.hidden_row_id();
  const bool numbers_rows= altered->found_next_number_field && !table->found_next_number_field;
  info->unsupported_reason= reason_to_copy(thd(), wanted, numbers_rows, loses_key);
  /* Defaults come first: what InnoDB warns of, which makes more tables anew in place, is said where
     the server copies here, too. */
  if (columns.size() != altered->s->fields ||
      (may_rebuild_in_innodb(of_innodb) && !adds_constants(const_cast<TABLE *>(altered), columns)))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  const Readable readable= keep_readable(table, altered, columns);
  if ((wanted & ~(NO_CHANGE_OF_ROWS | INDEX_CHANGES | CHANGES_OF_PLACES | MAKES_ANEW | ALTER_PARTITIONED)) ||
      !readable.rows || !has_own_indexes(altered) ||
      ((wanted & ALTER_DROP_STORED_COLUMN) && drops_referring(thd(), access.share->name, table, columns)) ||
      (reserved_after(of_innodb, altered, info) == NOTED && adds_checks(altered, columns)))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  const bool stays= !(wanted & MAKES_ANEW) && readable.entries && same_primary_key(table, altered, columns) &&
                    indexes_old_columns(altered, info, columns) &&
                    access.share->row_layout()->places.size() + altered->s->fields <= RowLayout::PLACES_MAX;
  if (stays && !info->index_add_count)
    return HA_ALTER_INPLACE_INSTANT;
  if (stays)
  {
    info->unsupported_reason= "ADD INDEX";
    return HA_ALTER_INPLACE_NOCOPY_NO_LOCK;
  }
  return loses_key || altered->versioned() || access.share->is_discarded() ? HA_ALTER_INPLACE_NOT_SUPPORTED
                                                                          : HA_ALTER_INPLACE_COPY_NO_LOCK;
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
  IndexBuild build;
  RowLayout layout;
};

/* A duplicate was shown where it was found. */
static bool report(THD *thd, handler *handler, int failed)
{
  if (failed && !thd->is_error())
    handler->print_error(failed, MYF(0));
  return failed != 0;
}

/* Indexes that go, get other names, or come. */
static void plan_indexes(const Alter_inplace_info *info, AlterContext *context)
{
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
  /* Partitions may have answered otherwise: one that was emptied has room for more places. The
     server has the answer for all. */
  const bool is_made_anew= info->inplace_supported == HA_ALTER_INPLACE_COPY_NO_LOCK;
  if (!is_made_anew)
    plan_indexes(info, context);
  List_iterator_fast<Alter_drop> dropped(info->alter_info->drop_list);
  while (const Alter_drop *drop= dropped++)
    if (drop->type == Alter_drop::FOREIGN_KEY)
      context->plan.drop_foreign_key(drop->name);
  List_iterator_fast<Create_field> columns(info->alter_info->create_list);
  while (const Create_field *column= columns++)
    if (column->field && strcmp(column->field->field_name.str, column->field_name.str))
      context->plan.rename_column(column->field->field_name.str, column->field_name.str);
  std::vector<RowLayout::Addition> added;
  int failed= find_added(altered, info, &added);
  if (!failed && !is_made_anew)
    context->layout= altered_layout(altered, info, added);
  if (!failed && is_made_anew)
    failed= begin_rebuild(altered, info, old_columns(info), &context->build);
  else if (!failed && !context->built.empty())
    failed= track_writers(&context->build);
  return report(thd(), this, failed);
}

/* Where rows have their columns then. */
RowLayout ha_inkstone::altered_layout(const TABLE *altered, Alter_inplace_info *info,
                                      const std::vector<RowLayout::Addition> &added) const
{
  const std::vector<Field *> columns= old_columns(info), stored= stored_columns(table);
  const std::vector<Field *> new_stored= stored_columns(altered);
  std::vector<RowLayout::Column> changed;
  std::vector<size_t> number(table->s->fields);
  bool is_same= added.empty();
  for (const Field *field : stored)
  {
    number[field->field_index]= changed.size();
    changed.push_back({field, RowPlace::NO_COLUMN, Packing()});
  }
  for (size_t i= 0; i < new_stored.size(); i++)
    if (const Field *old= columns[new_stored[i]->field_index])
    {
      RowLayout::Column &column= changed[number[old->field_index]];
      column.becomes= static_cast<uint16>(i);
      Packing::of(new_stored[i], &column.packing);
    }
  for (size_t i= 0; i < changed.size(); i++)
  {
    Packing now;
    Packing::of(stored[i], &now);
    is_same= is_same && changed[i].becomes == i && changed[i].packing == now;
  }
  const RowLayout &layout= *access.share->row_layout();
  return is_same ? layout : layout.altered(changed, codec.rows.place_count(), added);
}

int ha_inkstone::find_added(TABLE *altered, Alter_inplace_info *info,
                            std::vector<RowLayout::Addition> *added)
{
  const std::vector<Field *> columns= old_columns(info);
  Buffer packed;
  uint16 stored= 0;
  memcpy(altered->record[0], altered->s->default_values, altered->s->reclength);
  for (size_t i= 0; i < columns.size(); i++)
  {
    Field *field= altered->field[i];
    const uint16 number= stored;
    stored+= field->stored_in_db();
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
    else if (field->has_default_now_unireg_check())
    {
      field->set_notnull();
      field->set_time();
    }
    AddedColumn column;
    column.null= field->real_maybe_null() && field->is_null();
    packed.clear();
    if (!column.null && put_packed(packed, field, altered->record[0]))
      return HA_ERR_OUT_OF_MEM;
    column.packed.assign(packed.data(), packed.data() + packed.length());
    added->push_back({number, column});
  }
  return 0;
}

bool ha_inkstone::inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  AlterContext *context= static_cast<AlterContext *>(info->handler_ctx);
  if (context->build.rebuild)
    return report(thd(), this, fill_rebuilt(&context->build));
  if (context->built.empty())
    return false;
  thd_progress_init(thd(), static_cast<uint>(context->built.size()));
  const bool failed= build_indexes(altered, info, *context);
  thd_progress_end(thd());
  return failed;
}

bool ha_inkstone::build_indexes(TABLE *altered, Alter_inplace_info *info, AlterContext &context)
{
  const std::vector<Field *> columns= old_columns(info);
  int failed= begin_build(&context.build);
  for (size_t i= 0; !failed && i < context.built.size(); i++)
  {
    const std::string &name= context.built[i];
    failed= build_index(*find_key(altered, {name.data(), name.size()}), columns, &context.build);
    thd_progress_next_stage(thd());
  }
  if (!failed)
    failed= catch_up_beside_writers(&context.build);
  return report(thd(), this, failed);
}

bool ha_inkstone::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit)
{
  AlterContext *context= static_cast<AlterContext *>(info->handler_ctx);
  if (!context)
    return false;
  if (!commit)
  {
    if (context->build.rebuild && !context->build.rebuild->made.name.empty())
      ink_drop_table(access.share->home(), slice_of(context->build.rebuild->made.name), nullptr);
    for (const std::string &name : context->built)
    {
      const std::string tree= BUILDING + name;
      ink_drop_tree(access.share->home(), slice_of(access.share->name), slice_of(tree), nullptr);
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
    Rebuild *const rebuild= context->build.rebuild.get();
    if (!failed && (rebuild || !context->built.empty()))
      failed= handler->complete_build(&context->build);
    if (!failed && table->found_next_number_field)
      failed= handler->alter_counter(altered, info);
    changes.push_back({handler->access.share, &context->plan, &context->layout, rebuild ? &rebuild->made : nullptr});
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
