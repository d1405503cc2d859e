/* SPDX-License-Identifier: GPL-2.0-only */
/* Creating, dropping, renaming and emptying tables. Each is one durable, atomic step of the engine;
   what takes two is finished when the server starts (see finish_interrupted_ddl). */
#include "handler/ha_inkstone.h"
#include "ddl/tables.h"
#include "ddl/foreign_keys.h"
#include "server/change_times.h"
#include "create_options.h"
#include "ddl/partitions.h"
#include "server/variables.h"
#include "sql_partition.h"
#include <algorithm>
#include <set>

/* What the engine cannot do is refused before anything is made. */
static int refuse(const TABLE *form)
{
  for (uint i= 0; i < form->s->keys; i++)
  {
    const KEY &key= form->key_info[i];
    if (key.algorithm == HA_KEY_ALG_FULLTEXT || (key.flags & HA_FULLTEXT) ||
        (key.flags & HA_SPATIAL))
    {
      my_error(ER_TABLE_CANT_HANDLE_FT, MYF(0), "INKSTONE");
      return HA_ERR_UNSUPPORTED;
    }
    if (!my_strcasecmp(system_charset_info, key.name.str, META_TREE))
    {
      my_error(ER_WRONG_NAME_FOR_INDEX, MYF(0), key.name.str);
      return HA_ERR_UNSUPPORTED;
    }
  }
  return 0;
}

/* An option of another engine's that is switched on. */
static const char *foreign_option(const HA_CREATE_INFO *info)
{
  static const char *const off[]= {"0", "NO", "N", "OFF", "FALSE", "DEFAULT"};
  for (const engine_option_value *option= info->option_list; option; option= option->next)
  {
    bool is_on= option->value.str != nullptr;
    for (const char *word : off)
      is_on= is_on && my_strcasecmp(system_charset_info, option->value.str, word);
    if (is_on && !is_page_option(option->name))
      return option->name.str;
  }
  return nullptr;
}

/* What is asked for and cannot be given; nullptr: nothing. An ALTER that does not mention what the
   table has had for long, without effect, goes on. ROW_FORMAT=DYNAMIC, COMPACT and REDUNDANT ask
   for nothing that is seen. */
const char *refused_option(THD *thd, const HA_CREATE_INFO *info)
{
  const bool altering= thd_sql_command(thd) == SQLCOM_ALTER_TABLE ||
                       thd_sql_command(thd) == SQLCOM_CREATE_INDEX ||
                       thd_sql_command(thd) == SQLCOM_DROP_INDEX || thd_sql_command(thd) == SQLCOM_OPTIMIZE;
  const auto says= [&](ulonglong option) {
    return !altering || (info->used_fields & (option | HA_CREATE_USED_ENGINE));
  };
  const row_type format= info->row_type;
  if (format == ROW_TYPE_FIXED || format == ROW_TYPE_PAGE)
    return "ROW_TYPE";
  if (info->key_block_size && says(HA_CREATE_USED_KEY_BLOCK_SIZE) && format != ROW_TYPE_COMPRESSED &&
      format != ROW_TYPE_DEFAULT && format != ROW_TYPE_NOT_USED)
    return "KEY_BLOCK_SIZE";
  if (const char *contradiction= page_contradiction(info))
    return contradiction;
  if (info->data_file_name && *info->data_file_name)
    return "DATA DIRECTORY";
  if (info->index_file_name && *info->index_file_name)
    return "INDEX DIRECTORY";
  if (says(0) && !(thd->variables.sql_mode & MODE_IGNORE_BAD_TABLE_OPTIONS))
    if (const char *option= foreign_option(info))
      return option;
  return nullptr;
}

/* Notes facts of a new table, and which images its indexes will have. Durably: a table without that
   is taken for an old one. */
static int note_facts(THD *thd, ink_slice name, std::vector<ink_row> facts)
{
  ink_error error;
  OwnedTable opened;
  if (open_table(name, &opened, &error))
    return handler_error(thd, error);
  const MetaTree meta= meta_tree_of(name, opened.get());
  uchar version[8];
  mi_int8store(version, IMAGE_VERSION);
  facts.push_back({INK_STR("images"), {version, sizeof version}});
  return meta ? meta_put_all(thd, {{meta, facts}}, INK_SYNC) : HA_ERR_CRASHED;
}

int create_table(THD *thd, ink_slice name, const std::vector<ink_slice> &trees, const PageOptions &pages,
                 const std::vector<ink_row> &facts)
{
  ink_error error;
  std::vector<ink_option> options;
  for (const auto &option : pages)
    options.push_back({slice_of(option.first), slice_of(option.second)});
  if (ink_create_table_with(database_of(name), name, trees.data(), trees.size(), options.data(),
                            options.size(), &error))
    return error.code == INK_DISK_FULL ? ENOSPC : handler_error(thd, error);
  int failed= note_facts(thd, name, facts);
  if (failed)
    ink_drop_table(database_of(name), name, nullptr);
  return failed;
}

int ha_inkstone::create(const char *path, TABLE *form, HA_CREATE_INFO *info)
{
  if (int failed= refuse(form))
    return failed;
  if (const char *option= refused_option(ha_thd(), info))
  {
    my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "INKSTONE", option);
    return HA_WRONG_CREATE_OPTION;
  }
  std::vector<ink_slice> trees;
  PageOptions pages;
  ForeignKeys foreign_keys;
  const std::string table= TableName(path).text();
  try
  {
    if (int failed= foreign_keys_for(ha_thd(), table, form, info, &foreign_keys))
      return failed;
    page_options_for(ha_thd(), info, &pages);
    for (uint i= 0; i < form->s->keys; i++)
      if (i != form->s->primary_key)
        trees.push_back(slice_of(form->key_info[i].name));
    trees.push_back(INK_STR(META_TREE));
  }
  catch (const std::bad_alloc &)
  {
    return HA_ERR_OUT_OF_MEM;
  }
  if (int failed= is_temporary_table(slice_of(table)) ? make_temporary_database(ha_thd()) : 0)
    return failed;
  if (int failed= create_table(ha_thd(), slice_of(table), trees, pages, {}))
    return failed;
  if (int failed= foreign_keys.empty() ? 0 : set_foreign_keys(ha_thd(), {{table, foreign_keys}}))
  {
    ink_drop_table(database_of(slice_of(table)), slice_of(table), nullptr);
    return failed;
  }
  return form->found_next_number_field ? set_first_auto_increment(path, form, info) : 0;
}

int ha_inkstone::delete_table(const char *path)
{
  try
  {
    return ::drop_table(path);
  }
  catch (const std::bad_alloc &)
  {
    return HA_ERR_OUT_OF_MEM;
  }
}

bool is_copy_of_statement(const std::string &text)
{
  return !text.compare(text.find(FN_LIBCHAR) + 1, strlen(tmp_file_prefix), tmp_file_prefix) ||
         text.find("#TMP#") != std::string::npos;
}

static bool is_copy(const TableName &name)
{
  return is_copy_of_statement(name.text());
}

/* A copy that was filled while others went on: EXCHANGE PARTITION gives a table such a name, too,
   on its way. */
static bool is_filled_copy(const TableName &name)
{
  return is_copy(name) && name.text().find("/" tmp_file_prefix "-exchange-") == std::string::npos;
}

/* Detached transactions that are prepared hold no lock of the server's. */
int wait_for_prepared(THD *thd, const std::vector<std::string> &tables)
{
  Session *session= session_of(thd);
  if (!session)
    return HA_ERR_OUT_OF_MEM;
  session->forget_old_kill();
  ink_error error;
  std::vector<ink_slice> names;
  for (const std::string &table : tables)
    names.push_back(slice_of(table));
  const char *state= thd_proc_info(thd, "Waiting for prepared transactions");
  const int failed= ink_wait_for_prepared(database, names.data(), names.size(), lock_wait_timeout_ms(thd),
                                          session->interrupt.get(), &error);
  thd_proc_info(thd, state);
  return failed ? handler_error(thd, error) : 0;
}

static bool note_that_there_is_one(void *there_is_one, ink_slice)
{
  *static_cast<bool *>(there_is_one)= true;
  return false;
}

/* Waits before a table is dropped or renamed. `whole`: also for all partitions before the first
   one, as a timeout at the second would leave half of them. An ALTER that drops a partition behind
   its work waits for that one alone, as InnoDB's does: it fails for no other's sake. Copies that
   the server drops at the end of an ALTER have been waited for at its beginning, and its ddl log,
   after a crash, cannot wait for a coordinator that comes later. A table that the server drops as
   CREATE has failed is new: no other transaction has changed it, and where the drop failed, too, it
   would be left without a definition. */
static int wait_before_move(THD *thd, const TableName &name, bool whole)
{
  bool there_is_one= false;
  ink_error error;
  if (!thd || !mysqld_server_started || is_copy(name))
    return 0;
  if (thd_sql_command(thd) == SQLCOM_CREATE_TABLE && (thd->is_error() || thd_kill_level(thd)))
    return 0;
  if (ink_prepared(database, note_that_there_is_one, &there_is_one, &error))
    return handler_error(thd, error);
  if (!there_is_one)
    return 0;
  std::vector<std::string> tables= {name.text()};
  const PartitionPath path(tables[0]);
  if (whole && path.is_partition())
    if (int failed= partitions_of(thd, path.table, &tables))
      return failed;
  return wait_for_prepared(thd, tables);
}

/* Also the server's ddl log calls it, again after a crash: a table that is not there is no
   error. */
int drop_table(const char *path)
{
  ink_error error;
  TableName name(path);
  THD *thd= current_thd;
  /* Where an ALTER fails that copies, the server goes on counting values that are cut in the
     session's next statements: a SELECT would warn that does not where InnoDB's ALTER fails in
     place. */
  if (thd && thd->is_error() && is_copy(name))
    if (const Session *session= session_of(thd))
      if (session->altered.query == thd->query_id)
        thd->count_cuted_fields= CHECK_FIELD_IGNORE;
  if (int refused= refuse_dropped_parent(thd, name.text()))
    return refused;
  const bool whole= thd && thd_sql_command(thd) != SQLCOM_ALTER_TABLE;
  if (int failed= wait_before_move(thd, name, whole))
    return failed;
  const bool has_files= waits_for_files(thd, name.text());
  if (!ink_drop_table(database_of(name.slice()), name.slice(), &error))
  {
    if (has_files)
      remove_files(name.text());
    change_times::forget(name.text());
    return 0;
  }
  return error.code == INK_NOT_FOUND ? ENOENT : handler_error(thd, error);
}

/* A copy was filled while others began transactions: their snapshots would find few of its rows. */
static int complete(const TableName &name)
{
  ink_error error;
  OwnedTable opened;
  if (open_table(name.slice(), &opened, &error))
    return handler_error(current_thd, error);
  for (size_t i= 0; i < ink_table_tree_count(opened.get()); i++)
    if (ink_complete_tree(database_of(name.slice()), ink_table_tree(opened.get(), i), &error))
      return handler_error(current_thd, error);
  return 0;
}

/* The server says of a rename only that it failed (1025), and no program tries that again. What is
   said first is what the program is told. */
static void tell_why_it_is_not_renamed(const THD *thd, int failed)
{
  if (failed == HA_ERR_LOCK_WAIT_TIMEOUT)
    my_error(ER_LOCK_WAIT_TIMEOUT, MYF(0));
  else if (failed == HA_ERR_ABORTED_BY_USER)
    my_error(thd->killed == KILL_TIMEOUT ? ER_STATEMENT_TIMEOUT : ER_QUERY_INTERRUPTED, MYF(0));
}

/* Behind a copy's rename to a name that its table did not have there would be a moment in which
   references are to none: a crash in it is not put right, one before it is, as the server's ddl log
   renames the copy. */
static int take_references_along(THD *thd, const TableName &copy, const TableName &to)
{
  std::string from;
  if (!is_copy(copy) || is_copy(to) || PartitionPath(to.text()).is_partition())
    return 0;
  return is_renamed_by_copy(thd, to.text(), &from) ? rename_altered_foreign_keys(thd, copy.text(), from, to.text()) : 0;
}

int ha_inkstone::rename_table(const char *from, const char *to)
{
  ink_error error;
  TableName from_name(from), to_name(to);
  try
  {
    if (int failed= wait_before_move(ha_thd(), from_name, true))
    {
      tell_why_it_is_not_renamed(ha_thd(), failed);
      return failed;
    }
    if (int failed= note_rename(ha_thd(), from, to))
      return failed;
    const bool is_new= is_filled_copy(from_name);
    if (int failed= is_new ? complete(from_name) : 0)
      return failed == HA_ERR_NO_SUCH_TABLE ? rename_whole(ha_thd(), from, to) : failed;
    /* References of other tables are to a name, not to a copy that takes it. */
    if (int failed= take_references_along(ha_thd(), from_name, to_name))
      return failed;
    const auto rename= is_copy(from_name) || is_copy(to_name) ? ink_rename_table_alone : ink_rename_table;
    if (!rename(database_of(from_name.slice()), from_name.slice(), to_name.slice(), &error))
    {
      const std::string old= from_name.text(), now= to_name.text();
      if (rename == ink_rename_table)
        if (int failed= rename_foreign_keys(ha_thd(), old, now))
          return failed;
      if (is_new)
        change_times::forget(old);
      else
        change_times::rename(old, now);
      return 0;
    }
    if (error.code == INK_NOT_FOUND)
      return rename_whole(ha_thd(), from, to);
  }
  catch (const std::bad_alloc &)
  {
    return HA_ERR_OUT_OF_MEM;
  }
  return handler_error(ha_thd(), error);
}

/* Makes an empty table like another, to take its place, of which these facts are known. */
static int create_replacement(THD *thd, const std::string &name, const std::vector<ink_row> &facts)
{
  ink_error error;
  OwnedTable opened;
  if (open_table(slice_of(name), &opened, &error))
    return handler_error(thd, error);
  const std::string replacement= name + REPLACEMENT;
  std::vector<ink_slice> trees;
  for (size_t i= 1; i < ink_table_tree_count(opened.get()); i++)
    trees.push_back(ink_tree_name(ink_table_tree(opened.get(), i)));
  return create_table(thd, slice_of(replacement), trees, page_options_of(opened.get()), facts);
}

/* Empties all of these tables in one step. `facts`: of each of the empty ones. */
static int truncate_all(THD *thd, const std::vector<std::string> &names, const std::vector<ink_row> &facts)
{
  std::vector<std::string> replacements;
  int failed= 0;
  for (const std::string &name : names)
    if (!failed && !(failed= create_replacement(thd, name, facts)))
      replacements.push_back(name + REPLACEMENT);
  std::vector<ink_slice> from, to;
  for (size_t i= 0; i < replacements.size(); i++)
  {
    from.push_back(slice_of(replacements[i]));
    to.push_back(slice_of(names[i]));
  }
  ink_error error;
  if (!failed && ink_replace_tables(database_of(to.front()), from.data(), to.data(), from.size(), &error))
    failed= handler_error(thd, error);
  for (size_t i= 0; failed && i < from.size(); i++)
    ink_drop_table(database_of(from[i]), from[i], nullptr);
  return failed;
}

/* As InnoDB says it of what changes a discarded table's definition, and takes it. */
void warn_of_discarded(THD *thd, const TABLE *table)
{
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_TABLESPACE_DISCARDED,
                      ER_THD(thd, ER_TABLESPACE_DISCARDED), table->s->table_name.str);
}

/* A discarded table is an ordinary one again, and empty. */
int ha_inkstone::truncate()
{
  if (access.share->is_discarded() && !thd_tablespace_op(thd()))
    warn_of_discarded(thd(), table);
  return replace_by_empty({});
}

/* Leaves those of a table's partitions that ALTER TABLE .. TRUNCATE PARTITION names. */
static void keep_to_truncate(partition_info *info, const std::string &table, const std::string &own,
                             std::vector<std::string> *names)
{
  std::set<std::string> truncated= {own};
  char name[FN_REFLEN + 1];
  List_iterator_fast<partition_element> parts(info->partitions);
  while (partition_element *part= parts++)
  {
    if (part->part_state != PART_ADMIN)
      continue;
    if (!info->is_sub_partitioned() &&
        !create_partition_name(name, sizeof name, table.c_str(), part->partition_name, NORMAL_PART_NAME, true))
      truncated.insert(name);
    List_iterator_fast<partition_element> subparts(part->subpartitions);
    while (partition_element *subpart= subparts++)
      if (!create_subpartition_name(name, sizeof name, table.c_str(), part->partition_name,
                                    subpart->partition_name, NORMAL_PART_NAME))
        truncated.insert(name);
  }
  const auto is_other= [&](const std::string &each) { return !truncated.count(each); };
  names->erase(std::remove_if(names->begin(), names->end(), is_other), names->end());
}

/* In one step; `facts` are those of the empty table.

   The server truncates a partitioned table, or some of its partitions, one partition after the
   other, and nothing finishes that after a crash: the first one empties them all, the others find
   it done. */
int ha_inkstone::replace_by_empty(const std::vector<ink_row> &facts)
{
  try
  {
    const PartitionPath path(access.share->name);
    const bool is_partition= table->part_info && path.is_partition();
    const bool whole= is_partition && thd()->lex->sql_command == SQLCOM_TRUNCATE;
    const bool some= is_partition && (thd()->lex->alter_info.partition_flags & ALTER_PARTITION_TRUNCATE);
    const std::string own= access.share->name;
    std::vector<std::string> names= {own};
    int failed= 0;
    if ((whole || some) && ink_table_is_replaced(access.share->engine_table(), slice_of(own)))
      names.clear();
    else if (whole || some)
      failed= partitions_of(thd(), path.table, &names);
    if (some && !names.empty())
      keep_to_truncate(table->part_info, path.table, own, &names);
    if (!failed)
      failed= wait_for_prepared(thd(), names);
    if (!failed && !names.empty())
      failed= truncate_all(thd(), names, facts);
    if (failed)
      return failed;
  }
  catch (const std::bad_alloc &)
  {
    return HA_ERR_OUT_OF_MEM;
  }
  scan.close();
  return access.share->reopen(thd(), table->s);
}

struct NameList
{
  std::vector<std::string> names;
  std::string prefix;
};

static bool starts_with(const std::string &text, const std::string &beginning)
{
  return text.compare(0, beginning.size(), beginning) == 0;
}

/* Tables that only a crash leaves: the server's temporary ones, and replacements that were not put
   in place. */
static bool add_leftover(void *context, ink_slice name)
{
  NameList *list= static_cast<NameList *>(context);
  const std::string text= text_of(name);
  size_t ending= sizeof REPLACEMENT - 1;
  if (text.find("/" tmp_file_prefix "-temptable-") != std::string::npos ||
      (text.size() > ending && !text.compare(text.size() - ending, ending, REPLACEMENT)))
    list->names.push_back(text);
  return true;
}

static bool add_of_database(void *context, ink_slice name)
{
  NameList *list= static_cast<NameList *>(context);
  const std::string text= text_of(name);
  if (starts_with(text, list->prefix))
    list->names.push_back(text);
  return true;
}

static int drop_all(NameList &list, ink_visit_name which)
{
  ink_error error;
  if (ink_tables(database, which, &list, &error))
    return handler_error(nullptr, error);
  int failed= 0;
  for (const std::string &name : list.names)
    if (ink_drop_table(database, slice_of(name), &error))
      failed= handler_error(nullptr, error);
    else
      change_times::forget(name);
  return failed;
}

int finish_interrupted_ddl()
{
  NameList list;
  return drop_all(list, add_leftover);
}

/* The server drops a database's tables one by one; this is for those that it does not know. */
void drop_database(handlerton *, char *path)
{
  std::string name(path);
  while (!name.empty() && name.back() == FN_LIBCHAR)
    name.pop_back();
  NameList list;
  list.prefix= name.substr(name.rfind(FN_LIBCHAR) + 1) + "/";
  if (drop_all(list, add_of_database))
    sql_print_error("Inkstone: tables of %s are left", list.prefix.c_str());
}
