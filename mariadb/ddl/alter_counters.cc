/* SPDX-License-Identifier: GPL-2.0-only */
/* What ALTER TABLE makes of the counter of AUTO_INCREMENT: what InnoDB makes of it, which has two
   of them. One is in memory, and counts what was only reserved; one is noted with the rows, and is
   all that a restart knows. An ALTER that InnoDB does in place keeps both, one that the server
   copies notes the one in memory. */
#include "ddl/alter.h"
#include "handler/ha_inkstone.h"
#include "server/partition_path.h"
#include <algorithm>

/* For these InnoDB makes a table anew in place. */
static const alter_table_operations REBUILDS=
    ALTER_RECREATE_TABLE | ALTER_ADD_PK_INDEX | ALTER_DROP_PK_INDEX | ALTER_COLUMN_NULLABLE |
    ALTER_COLUMN_NOT_NULLABLE;

/* For these only if it cannot do them instantly. */
static const alter_table_operations COLUMNS_OF_ROWS=
    ALTER_DROP_STORED_COLUMN | ALTER_ADD_STORED_BASE_COLUMN | ALTER_STORED_COLUMN_ORDER;

/* These it leaves to the server. */
static const alter_table_operations IN_DEFINITION_ONLY=
    ALTER_CHANGE_COLUMN_DEFAULT | ALTER_DROP_CHECK_CONSTRAINT | ALTER_RENAME | ALTER_CHANGE_INDEX_COMMENT |
    ALTER_INDEX_IGNORABILITY | ALTER_INDEX_ORDER | ALTER_VIRTUAL_GCOL_EXPR | ALTER_PARTITIONED;

static const alter_table_operations VIRTUAL_CHANGES=
    ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN | ALTER_VIRTUAL_COLUMN_ORDER;

static const alter_table_operations NEW_INDEXES=
    ALTER_ADD_INDEX | ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX;

/* What InnoDB combines with these. */
static const alter_table_operations BESIDE_VIRTUAL_CHANGES=
    VIRTUAL_CHANGES | ALTER_VIRTUAL_GCOL_EXPR | ALTER_COLUMN_VCOL | ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX |
    ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_INDEX | ALTER_DROP_INDEX | ALTER_INDEX_ORDER;

static uint64 behind(ulonglong used) { return used == ~0ULL ? used : used + 1; }

static bool has_virtual(const TABLE *table)
{
  return stored_columns(table).size() != table->s->fields;
}

/* The greatest value of any row; 0: there is none. */
int ha_inkstone::greatest_auto_increment(ulonglong *greatest)
{
  *greatest= 0;
  Field *field= table->found_next_number_field;
  if (table->s->next_number_keypart)
    return 0;
  MY_BITMAP *saved= table->read_set;
  table->column_bitmaps_set_no_signal(&table->s->all_set, table->write_set);
  int failed= ha_index_init(table->s->next_number_index, true);
  if (!failed)
  {
    const KEY_PART_INFO &part= table->key_info[table->s->next_number_index].key_part[0];
    failed= part.key_part_flag & HA_REVERSE_SORT ? ha_index_first(table->record[0])
                                                 : ha_index_last(table->record[0]);
    ha_index_end();
  }
  table->column_bitmaps_set_no_signal(saved, table->write_set);
  if (failed == HA_ERR_END_OF_FILE || failed == HA_ERR_KEY_NOT_FOUND)
    return 0;
  if (!failed && (field->val_int() > 0 || (field->flags & UNSIGNED_FLAG)))
    *greatest= field->val_int();
  return failed;
}

/* A value that is in use is noted as behind the greatest, and goes on where increment and offset
   allow. */
int ha_inkstone::set_behind_rows(ulonglong next)
{
  ulonglong greatest;
  if (int failed= greatest_auto_increment(&greatest))
    return failed;
  if (next > greatest)
    return counter().set(thd(), next);
  if (int failed= counter().set(thd(), behind(greatest)))
    return failed;
  counter().raise(auto_increment.next_free(greatest));
  return 0;
}

/* The counter may be lowered, but not to a value that is in use. Where it is raised no row is
   looked at, as in InnoDB. */
int ha_inkstone::lower_auto_increment(ulonglong wanted)
{
  const ulonglong next= wanted ? wanted : 1;
  return next < counter().next() ? set_behind_rows(next) : counter().set(thd(), next);
}

/* As greatest_auto_increment, of a table that this statement has not locked. */
int ha_inkstone::greatest_uncommitted(ulonglong *greatest)
{
  ink_error error;
  if (int failed= use_session(ha_thd()))
    return failed;
  if (begin(access.share->home(), INK_READ_UNCOMMITTED, access.session->interrupt.get(), &access.own, &error))
    return failure(error);
  const int failed= greatest_auto_increment(greatest);
  scan.close();
  access.own.reset();
  return failed;
}

/* What is noted after a restart and no row can have is found from the rows, as InnoDB does it. If
   they cannot be read the table opens all the same: CHECK TABLE is to say why. */
int ha_inkstone::find_auto_increment()
{
  if (!counter().lacks() || is_outdated() || access.share->is_discarded())
    return 0;
  ulonglong greatest;
  return greatest_uncommitted(&greatest) ? 0 : counter().found(thd(), behind(greatest));
}

/* The virtual columns that stay come first, in the order that they had. */
static bool keeps_virtual_order(const TABLE *before, const TABLE *altered)
{
  uint at= 0, kept= 0;
  for (uint i= 0; i < altered->s->fields; i++)
  {
    const Field *field= altered->field[i];
    if (field->stored_in_db())
      continue;
    while (at < before->s->fields && strcmp(before->field[at]->field_name.str, field->field_name.str))
      at++;
    kept+= at < before->s->fields;
  }
  uint staying= 0;
  for (uint i= 0; i < before->s->fields; i++)
    staying+= !before->field[i]->stored_in_db() && !(before->field[i]->flags & FIELD_IS_DROPPED);
  return kept == staying;
}

static bool has_indexed_virtual(const TABLE *table)
{
  for (uint i= 0; i < table->s->fields; i++)
    if (!table->field[i]->stored_in_db() && (table->field[i]->flags & PART_KEY_FLAG))
      return true;
  return false;
}

bool leaves_rows_out(const Alter_inplace_info *info)
{
  return info->ignore && (info->handler_flags & (ALTER_ADD_UNIQUE_INDEX | ALTER_ADD_PK_INDEX));
}

alter_table_operations wanted_of_innodb(const Alter_inplace_info *info)
{
  /* It looks at lengths itself. */
  alter_table_operations wanted= info->handler_flags & ~ALTER_COLUMN_INDEX_LENGTH;
  if ((wanted & ALTER_OPTIONS) && (info->create_info->used_fields & HA_CREATE_USED_ROW_FORMAT))
    wanted|= ALTER_RECREATE_TABLE;
  /* Rows that the new definition refuses are left out, which only a copy does: of InnoDB's kinds it
     is one that copies. */
  return leaves_rows_out(info) ? wanted | ALTER_STORED_COLUMN_TYPE : wanted;
}

bool may_rebuild_in_innodb(alter_table_operations wanted)
{
  if (wanted & ~(NO_CHANGE_OF_ROWS | INDEX_CHANGES | REBUILDS | COLUMNS_OF_ROWS | ALTER_PARTITIONED |
                 ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE))
    return false;
  return !(wanted & ALTER_DROP_PK_INDEX) || (wanted & ALTER_ADD_PK_INDEX);
}

/* Rows of this format have a place for NULLs of every column. Those of the primary key are sorted
   otherwise. */
static bool takes_nulls_instantly(const TABLE *before, const TABLE *altered)
{
  if (before->s->row_type != ROW_TYPE_REDUNDANT)
    return false;
  if (before->s->primary_key >= MAX_KEY)
    return true;
  const KEY &key= before->key_info[before->s->primary_key];
  for (uint i= 0; i < key.user_defined_key_parts; i++)
    for (uint j= 0; j < altered->s->fields; j++)
      if (altered->field[j]->real_maybe_null() &&
          !my_strcasecmp(system_charset_info, altered->field[j]->field_name.str,
                         key.key_part[i].field->field_name.str))
        return false;
  return true;
}

/* A key has a virtual column that was not there before. */
static bool indexes_new_virtual(const TABLE *before, const TABLE *altered)
{
  const auto is_new= [&](const Field *field) {
    Field **const end= before->field + before->s->fields;
    return !field->stored_in_db() && std::none_of(before->field, end, [&](const Field *old) {
      return !my_strcasecmp(system_charset_info, old->field_name.str, field->field_name.str);
    });
  };
  for (uint i= 0; i < altered->s->keys; i++)
    for (uint j= 0; j < altered->key_info[i].user_defined_key_parts; j++)
      if (is_new(altered->field[altered->key_info[i].key_part[j].fieldnr - 1]))
        return true;
  return false;
}

/* The values of a column of this key may be longer than 255 bytes now, and could not before. */
static bool has_grown_long(const KEY &key, const Alter_inplace_info *info)
{
  for (uint i= 0; i < key.user_defined_key_parts; i++)
  {
    const Create_field *column= info->alter_info->create_list.elem(key.key_part[i].fieldnr);
    if (column->field && column->field->field_length <= 255 && column->length > 255)
      return true;
  }
  return false;
}

/* Some index is new whose entries, in InnoDB with the primary key, have a column that has grown
   so: the ones that are there need not know it. */
static bool relearns_lengths(const TABLE *altered, const Alter_inplace_info *info)
{
  const uint primary= altered->s->primary_key;
  const bool primary_grew= primary < MAX_KEY && has_grown_long(info->key_info_buffer[primary], info);
  uint *const end= info->index_add_buffer + info->index_add_count;
  return std::any_of(info->index_add_buffer, end, [&](uint added) {
    return primary_grew || has_grown_long(info->key_info_buffer[added], info);
  });
}

/* What InnoDB's way of altering a table makes of what was reserved and not used. */
ha_inkstone::Reserved ha_inkstone::reserved_after(alter_table_operations wanted, const TABLE *altered,
                                                  const Alter_inplace_info *info) const
{
  if (!may_rebuild_in_innodb(wanted))
    return NOTED;
  const alter_table_operations rebuilds=
      takes_nulls_instantly(table, altered) ? REBUILDS & ~ALTER_COLUMN_NULLABLE : REBUILDS;
  const bool instant= !(wanted & (rebuilds | NEW_INDEXES)) &&
                      !((wanted & COLUMNS_OF_ROWS) && has_indexed_virtual(table));
  if (wanted & VIRTUAL_CHANGES)
  {
    const alter_table_operations more= instant ? ALTER_DROP_STORED_COLUMN | ALTER_STORED_COLUMN_ORDER : 0;
    if ((wanted & ~(BESIDE_VIRTUAL_CHANGES | more)) || table->part_info || !keeps_virtual_order(table, altered))
      return NOTED;
    if ((wanted & ALTER_DROP_VIRTUAL_COLUMN) && indexes_new_virtual(table, altered))
      return NOTED;
  }
  if (!(wanted & ~IN_DEFINITION_ONLY))
    return KEPT;
  /* Then it opens the table anew, as behind a restart. */
  const bool rebuilt= !instant && (wanted & (REBUILDS | COLUMNS_OF_ROWS));
  return (wanted & (ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN)) ||
                 ((has_virtual(altered) || relearns_lengths(altered, info)) && !rebuilt)
             ? FORGOTTEN
             : KEPT;
}

/* Whether InnoDB makes the table anew in place, or looks at its rows. */
bool ha_inkstone::makes_anew_in_innodb(alter_table_operations wanted, const TABLE *altered,
                                       const Alter_inplace_info *info) const
{
  if (!may_rebuild_in_innodb(wanted))
    return false;
  const alter_table_operations rebuilds=
      takes_nulls_instantly(table, altered) ? REBUILDS & ~ALTER_COLUMN_NULLABLE : REBUILDS;
  return (wanted & rebuilds) || ((wanted & COLUMNS_OF_ROWS) && has_indexed_virtual(table)) ||
         (info->create_info->used_fields & HA_CREATE_USED_AUTO);
}

/* What a copy gets of the counter as it is now. */
void ha_inkstone::count_altered(AlteredCounters::Counter *old)
{
  counter().both(&old->next, &old->noted);
  if (!old->forgets_reserved)
    return;
  /* As behind a restart. */
  ulonglong greatest;
  if (old->noted - 1 > table->found_next_number_field->get_max_int_value() && !access.own &&
      !greatest_uncommitted(&greatest))
    old->noted= behind(greatest);
  old->next= old->noted;
}

/* For a copy that is made. */
void ha_inkstone::note_counter(alter_table_operations wanted, const TABLE *altered,
                               const Alter_inplace_info *info)
{
  Session *noting= session_of(ha_thd());
  const Reserved reserved= reserved_after(wanted, altered, info);
  if (!noting || reserved == NOTED)
    return;
  if (noting->altered.query != ha_thd()->query_id)
    noting->altered.counters.clear();
  noting->altered.query= ha_thd()->query_id;
  if (!table->found_next_number_field)
    return;
  AlteredCounters::Counter old= {PartitionPath(access.share->name).partition, 0, 0, reserved == FORGOTTEN, false};
  count_altered(&old);
  noting->altered.counters.push_back(old);
}

/* The table is locked for the copy, before the new one is made: the statement may have waited for
   transactions that have counted since. */
void ha_inkstone::recount_altered()
{
  AlteredCounters &altered= access.session->altered;
  if (altered.query != ha_thd()->query_id || !table->found_next_number_field)
    return;
  for (AlteredCounters::Counter &old : altered.counters)
    if (!old.handed_over && old.partition == PartitionPath(access.share->name).partition)
      count_altered(&old);
}

/* Of a table that is made: not only what the statement says. An ALTER that copies hands the old
   table's counter over. */
int ha_inkstone::set_first_auto_increment(const char *path, const TABLE *form, const HA_CREATE_INFO *info)
{
  AlteredCounters::Counter first= {"", info->auto_increment_value, info->auto_increment_value, false, false};
  Session *session= session_of(ha_thd());
  if (session && session->altered.query == ha_thd()->query_id && !(info->used_fields & HA_CREATE_USED_AUTO))
    for (AlteredCounters::Counter &old : session->altered.counters)
      if (old.partition == PartitionPath(path).partition)
      {
        old.handed_over= true;
        first= old;
      }
  if (first.next <= 1)
    return 0;
  TableShare made;
  if (int failed= made.open(ha_thd(), path, form->s))
    return failed;
  made.auto_increment().raise(first.next);
  return made.auto_increment().note(ha_thd(), first.noted);
}

int ha_inkstone::alter_counter(const TABLE *altered, const Alter_inplace_info *info)
{
  if (info->create_info->used_fields & HA_CREATE_USED_AUTO)
    if (int failed= lower_auto_increment(info->create_info->auto_increment_value))
      return failed;
  switch (reserved_after(wanted_of_innodb(info), altered, info))
  {
  case NOTED:
    /* A copy gets the table's counter, each of its partitions, and counts the rows: that may be
       more than what the partition has counted, as an UPDATE moves rows to others and only the
       table counts that. It is less where the table's has run over. */
    if (table->part_info)
      return set_behind_rows(std::max<ulonglong>(info->create_info->auto_increment_value, 1));
    return counter().set(thd(), std::max<uint64>(counter().next(),
                                                             info->create_info->auto_increment_value));
  case FORGOTTEN:
    return forget_reserved();
  case KEPT:
    break;
  }
  return 0;
}

/* A counter that no row can have is found from the rows. */
int ha_inkstone::forget_reserved()
{
  ulonglong greatest;
  if (counter().forget_reserved() - 1 <= table->found_next_number_field->get_max_int_value())
    return 0;
  int failed= greatest_auto_increment(&greatest);
  return failed ? failed : counter().set(thd(), behind(greatest));
}

int ha_inkstone::reset_auto_increment(ulonglong value)
{
  return counter().set(thd(), value);
}

/* The server asks the table that it alters, before it makes the copy; OPTIMIZE asks several tables
   one after the other. */
void ha_inkstone::update_create_info(HA_CREATE_INFO *info)
{
  if (Session *session= session_of(ha_thd()))
  {
    session->described_by= ha_thd()->query_id;
    session->described= access.share->name;
  }
  if (!(info->used_fields & HA_CREATE_USED_AUTO))
  {
    this->info(HA_STATUS_AUTO);
    info->auto_increment_value= stats.auto_increment_value;
  }
}
