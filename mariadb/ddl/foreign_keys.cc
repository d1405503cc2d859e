/* SPDX-License-Identifier: GPL-2.0-only */
/* Which foreign keys a statement gives a table, and which statements they forbid
   (ddl/foreign_keys.h). */
#include "ddl/foreign_keys.h"
#include "ddl/tables.h"
#include "references/references.h"
#include "server/session.h"
#include <algorithm>
#include <map>

/* Of the table that an ALTER is about; it may be another engine's. */
static std::string altered_table(THD *thd, const Session *session)
{
  if (session->described_by == thd->query_id)
    return session->described;
  const TABLE_LIST *first= thd->lex->first_select_lex()->table_list.first;
  return first ? engine_name(first->db.str, first->table_name.str) : std::string();
}

static std::string database_of(const std::string &name)
{
  return name.substr(0, name.find(FN_LIBCHAR));
}

/* A foreign key by its name if the statement gives it one, else by its columns. */
static std::string key_in_words(const ForeignKey &key, bool is_named)
{
  if (is_named)
    return "`" + key.name + "`";
  std::string columns;
  for (const std::string &column : key.columns)
    columns+= (columns.empty() ? "" : ", ") + column;
  return "(" + columns + ")";
}

/* What a statement makes of a foreign key. */
struct Defined
{
  THD *thd;
  /** The engine's name of the table that it is a foreign key of. */
  const std::string &table;
  ForeignKey key;
  bool is_named;

  /** Says why it cannot be, in InnoDB's words, and gives the number that the server shows with its
      error 1005. */
  int refuse(const std::string &reason, const char *with= "with ") const;
};

static int refuse_definition(THD *thd, const std::string &table, const std::string &reason)
{
  const SqlName name(table);
  const char *verb= thd_sql_command(thd) == SQLCOM_ALTER_TABLE ? "Alter " : "Create ";
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_CANNOT_ADD_FOREIGN, "%s table `%s`.`%s` %s", verb,
                      name.database.c_str(), name.table.c_str(), reason.c_str());
  return HA_ERR_CANNOT_ADD_FOREIGN;
}

int Defined::refuse(const std::string &reason, const char *with) const
{
  return refuse_definition(thd, table,
                           with + ("foreign key " + key_in_words(key, is_named)) + " constraint failed. " + reason);
}

/* Whether the child has what a foreign key needs. */
static int check_child(const Defined &defined, const TABLE *form)
{
  const ForeignKey &key= defined.key;
  if (key.columns.size() != key.parent_columns.size())
    return defined.refuse("It has another number of columns than it refers to.");
  for (const std::string &name : key.columns)
    if (!find_column(form, name))
      return defined.refuse("Column " + name + " was not found.", "");
  return index_of_columns(form, key.columns) < 0 ? defined.refuse("There is no index that begins with its columns.") : 0;
}

/* Whether the child takes each NULL that it may be to have. That of a parent InnoDB refuses without
   a word, and only beside ON DELETE RESTRICT. `parent`: nullptr if there is none yet. */
static int check_nulls(const Defined &defined, const TABLE *child, const TABLE *parent)
{
  const ForeignKey &key= defined.key;
  const bool sets_null= key.on_delete == INK_SET_NULL || key.on_update == INK_SET_NULL;
  for (size_t i= 0; i < key.columns.size(); i++)
  {
    if (find_column(child, key.columns[i])->real_maybe_null())
      continue;
    if (sets_null)
      return defined.refuse("You have defined a SET NULL condition but column '" + key.columns[i] +
                            "' is defined as NOT NULL.");
    if (parent && key.on_update == INK_CASCADE && key.on_delete == INK_RESTRICT &&
        find_column(parent, key.parent_columns[i])->real_maybe_null())
      return HA_ERR_CANNOT_ADD_FOREIGN;
  }
  return 0;
}

/* Whether child and parent go together. */
static int check_pair(const Defined &defined, const TABLE *child, const TABLE *parent)
{
  const ForeignKey &key= defined.key;
  for (const std::string &name : key.parent_columns)
    if (!find_column(parent, name))
      return defined.refuse("Column " + name + " was not found.", "");
  if (index_of_columns(parent, key.parent_columns) < 0)
    return defined.refuse("There is no index in the referenced table where the referenced columns appear as the"
                          " first columns.");
  for (size_t i= 0; i < key.columns.size(); i++)
  {
    const Field *own= find_column(child, key.columns[i]);
    if (!own || !same_type(own, find_column(parent, key.parent_columns[i])))
      return defined.refuse("Field type or character set for column '" + key.columns[i] +
                            "' does not match referenced column '" + key.parent_columns[i] + "'.");
  }
  return check_nulls(defined, child, parent);
}

/* Until the statement ends no row of a parent changes: what is looked at now holds when the foreign
   key is there. */
static int hold_parent(THD *thd, const ForeignKey &key)
{
  const SqlName parent(key.parent);
  MDL_request request;
  MDL_REQUEST_INIT(&request, MDL_key::TABLE, parent.database.c_str(), parent.table.c_str(), MDL_SHARED_NO_WRITE,
                   MDL_STATEMENT);
  return thd->mdl_context.acquire_lock(&request, static_cast<double>(thd->variables.lock_wait_timeout))
             ? HA_ERR_INKSTONE
             : 0;
}

/* Names of columns as their table has them, whatever letters the statement writes them in. */
static void take_names(const TABLE *form, std::vector<std::string> *columns)
{
  for (std::string &name : *columns)
    if (const Field *column= find_column(form, name))
      name= column->field_name.str;
}

/* `form` is the child's; a table that refers to itself is its own parent, in an ALTER as it was:
   its copy's rows are looked for there. */
static int check_added(Defined &defined, const TABLE *form, bool is_copy)
{
  THD *thd= defined.thd;
  ForeignKey &key= defined.key;
  take_names(form, &key.columns);
  if (int failed= check_child(defined, form))
    return failed;
  const bool is_own_parent= key.parent == key.child;
  if (is_own_parent && !is_copy)
  {
    take_names(form, &key.parent_columns);
    return check_pair(defined, form, form);
  }
  if (int failed= is_own_parent ? 0 : hold_parent(thd, key))
    return failed;
  Definition parent;
  const int failed= parent.open(thd, key.parent);
  if (failed == HA_ERR_NO_SUCH_TABLE)
  {
    const SqlName name(key.parent);
    return checks_foreign_keys(thd) ? defined.refuse("Referenced table `" + name.database + "`.`" + name.table +
                                                     "` not found in the data dictionary.")
                                    : check_nulls(defined, form, nullptr);
  }
  if (failed)
    return failed;
  take_names(parent.form(), &key.parent_columns);
  return check_pair(defined, form, parent.form());
}

/* Tables that refer to this one were made before it, or stay while it is altered. */
static int check_children(THD *thd, const std::string &own_name, const TABLE *form)
{
  ForeignKeys keys;
  if (!checks_foreign_keys(thd))
    return 0;
  if (int failed= foreign_keys_to(thd, own_name, &keys))
    return failed;
  for (const ForeignKey &key : keys)
  {
    Definition child;
    const int failed= key.child == own_name ? HA_ERR_NO_SUCH_TABLE : child.open(thd, key.child);
    if (failed && failed != HA_ERR_NO_SUCH_TABLE)
      return failed;
    if (!failed)
      if (int not_paired= check_pair({thd, own_name, key, true}, child.form(), form))
        return not_paired;
  }
  return 0;
}

static uint32_t action_of(enum_fk_option option)
{
  switch (option)
  {
  case FK_OPTION_CASCADE:
    return INK_CASCADE;
  case FK_OPTION_SET_NULL:
    return INK_SET_NULL;
  case FK_OPTION_NO_ACTION:
    return INK_NO_ACTION;
  default:
    return INK_RESTRICT;
  }
}

static std::vector<std::string> names_of(List<Key_part_spec> &columns)
{
  std::vector<std::string> names;
  List_iterator_fast<Key_part_spec> each(columns);
  while (const Key_part_spec *column= each++)
    names.push_back(column->field_name.str);
  return names;
}

/* The number behind "t_ibfk_" in a name that was made for a table; 0: it was given. */
static ulong generated_number(const std::string &name, const std::string &table)
{
  const std::string prefix= table + "_ibfk_";
  if (name.compare(0, prefix.size(), prefix) || name.size() == prefix.size() ||
      name.find_first_not_of("0123456789", prefix.size()) != std::string::npos)
    return 0;
  return strtoul(name.c_str() + prefix.size(), nullptr, 10);
}

/* What the statement adds to those that the table has. */
static std::vector<Defined> defined_by(THD *thd, const std::string &own_name, const ForeignKeys &keys)
{
  std::vector<Defined> all;
  const SqlName own(own_name);
  ulong last= 0;
  for (const ForeignKey &key : keys)
    last= std::max(last, generated_number(key.name, own.table));
  List_iterator_fast<Key> defined(thd->lex->alter_info.key_list);
  while (Key *each= defined++)
  {
    if (each->type != Key::FOREIGN_KEY)
      continue;
    Foreign_key *definition= static_cast<Foreign_key *>(each);
    ForeignKey key;
    const LEX_CSTRING &name= definition->constraint_name;
    const bool is_named= name.str && name.length;
    key.name= is_named ? std::string(name.str, name.length) : own.table + "_ibfk_" + std::to_string(++last);
    key.child= own_name;
    const char *database= definition->ref_db.str ? definition->ref_db.str : own.database.c_str();
    key.parent= engine_name(database, definition->ref_table.str);
    key.columns= names_of(definition->columns);
    key.parent_columns= names_of(definition->ref_columns);
    key.on_delete= action_of(definition->delete_opt);
    key.on_update= action_of(definition->update_opt);
    all.push_back({thd, own_name, key, is_named});
  }
  return all;
}

/* Names of foreign keys are those of their database. */
static int refuse_taken_name(const Defined &defined, const ForeignKeys &keys)
{
  const ForeignKey &added= defined.key;
  const auto same_name= [&](const ForeignKey &key) { return same_column(key.name.c_str(), added.name.c_str()); };
  if (std::any_of(keys.begin(), keys.end(), same_name))
    return HA_ERR_CANNOT_ADD_FOREIGN;
  ForeignKeys all;
  if (int failed= foreign_keys_of(defined.thd, std::string(), &all))
    return failed;
  const auto is_taken= [&](const ForeignKey &key) {
    return same_name(key) && key.child != added.child && database_of(key.child) == database_of(added.child) &&
           !is_copy_of_statement(key.child);
  };
  if (std::none_of(all.begin(), all.end(), is_taken))
    return 0;
  const SqlName name(added.child);
  const std::string text= describe(defined.thd, added);
  push_warning_printf(defined.thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_FOUND_DUPP_KEY,
                      "CREATE or ALTER TABLE `%s`.`%s` failed: duplicate name, %s", name.database.c_str(),
                      name.table.c_str(), text.c_str());
  return HA_ERR_FOUND_DUPP_KEY;
}

/* One that is made from its table's name may be longer than a statement could write it. */
static int refuse_long_name(const std::string &name)
{
  if (system_charset_info->numchars(name.data(), name.data() + name.size()) <= NAME_CHAR_LEN)
    return 0;
  my_error(ER_TOO_LONG_IDENT, MYF(0), name.c_str());
  return HA_ERR_INTERNAL_ERROR;
}

static bool sets_default(THD *thd)
{
  List_iterator_fast<Key> defined(thd->lex->alter_info.key_list);
  while (Key *each= defined++)
    if (each->type == Key::FOREIGN_KEY && (static_cast<Foreign_key *>(each)->delete_opt == FK_OPTION_SET_DEFAULT ||
                                           static_cast<Foreign_key *>(each)->update_opt == FK_OPTION_SET_DEFAULT))
      return true;
  return false;
}

/* Takes out of `keys` what an ALTER drops. */
static int drop_listed(const Alter_info &info, ForeignKeys *keys)
{
  List_iterator_fast<Alter_drop> dropped(const_cast<Alter_info &>(info).drop_list);
  while (const Alter_drop *drop= dropped++)
  {
    if (drop->type != Alter_drop::FOREIGN_KEY)
      continue;
    const auto has_name= [drop](const ForeignKey &key) { return same_column(key.name.c_str(), drop->name); };
    const auto found= std::find_if(keys->begin(), keys->end(), has_name);
    if (found == keys->end())
    {
      my_error(ER_CANT_DROP_FIELD_OR_KEY, MYF(0), "FOREIGN KEY", drop->name);
      return HA_ERR_INKSTONE;
    }
    keys->erase(found);
  }
  return 0;
}

/* The first index that an ALTER drops, for a message. */
static const char *dropped_index(const Alter_info &info)
{
  List_iterator_fast<Alter_drop> dropped(const_cast<Alter_info &>(info).drop_list);
  while (const Alter_drop *drop= dropped++)
    if (drop->type == Alter_drop::KEY)
      return drop->name;
  return nullptr;
}

static int refuse_dropped_index(THD *thd, const ForeignKey &key, const char *index)
{
  if (!index)
    return refuse_definition(thd, key.child, "foreign key " + key_in_words(key, true) +
                                                 " constraint failed. The index that it needs would be gone.");
  my_error(ER_DROP_INDEX_FK, MYF(0), index);
  return HA_ERR_INKSTONE;
}

/* What is left of the table's foreign keys by a copy. */
static int keep_altered(THD *thd, const std::string &own_name, const TABLE *form, ForeignKeys *keys)
{
  const Alter_info &info= thd->lex->alter_info;
  if (int failed= foreign_keys_of(thd, own_name, keys))
    return failed;
  if (int failed= drop_listed(info, keys))
    return failed;
  std::map<std::string, std::string> renamed;
  List_iterator_fast<Create_field> columns(const_cast<Alter_info &>(info).create_list);
  while (const Create_field *column= columns++)
    if (column->change.str)
      renamed[column->change.str]= column->field_name.str;
  const auto rename= [&](std::vector<std::string> &names) {
    for (std::string &name : names)
      for (const auto &pair : renamed)
        if (same_column(name.c_str(), pair.first.c_str()))
        {
          name= pair.second;
          break;
        }
  };
  for (ForeignKey &key : *keys)
  {
    rename(key.columns);
    if (key.parent == own_name)
      rename(key.parent_columns);
    if (checks_foreign_keys(thd) &&
        (index_of_columns(form, key.columns) < 0 ||
         (key.parent == own_name && index_of_columns(form, key.parent_columns) < 0)))
      return refuse_dropped_index(thd, key, dropped_index(info));
  }
  return 0;
}

int foreign_keys_for(THD *thd, const std::string &name, const TABLE *form, const HA_CREATE_INFO *info,
                     ForeignKeys *keys)
{
  Session *session= session_of(thd);
  if (!session)
    return HA_ERR_OUT_OF_MEM;
  const bool is_copy= is_copy_of_statement(name) && !info->tmp_table();
  const std::string own_name= is_copy ? altered_table(thd, session) : name;
  if (is_copy)
    if (int failed= keep_altered(thd, own_name, form, keys))
      return failed;
  std::vector<Defined> all= defined_by(thd, own_name, *keys);
  if (!all.empty() && info->tmp_table())
  {
    const std::string shown= engine_name(form->s->db.str, form->s->table_name.str);
    return refuse_definition(thd, shown, "with foreign key constraint failed. Temporary tables can't have foreign key"
                                         " constraints.");
  }
  std::set<std::string> added;
  for (Defined &defined : all)
  {
    if (int failed= refuse_long_name(defined.key.name))
      return failed;
    if (sets_default(thd))
      return defined.refuse("SET DEFAULT is not supported.");
    int failed= refuse_taken_name(defined, *keys);
    if (!failed)
      failed= check_added(defined, form, is_copy);
    if (failed)
      return failed;
    keys->push_back(defined.key);
    added.insert(defined.key.name);
  }
  if (is_copy)
  {
    session->adds_foreign_keys= thd->query_id;
    session->added_foreign_keys= added;
  }
  return info->tmp_table() ? 0 : check_children(thd, own_name, form);
}

/* Whether an index is left that a foreign key of the table, or one that refers to it, needs. */
static int refuse_needed_index(THD *thd, const std::string &name, const ForeignKeys &keys, const TABLE *altered,
                               const Alter_inplace_info *info)
{
  const char *dropped= info->index_drop_count ? info->index_drop_buffer[0]->name.str : nullptr;
  const auto renamed= [info](std::vector<std::string> names) {
    List_iterator_fast<Create_field> columns(info->alter_info->create_list);
    while (const Create_field *column= columns++)
      for (std::string &name : names)
        if (column->change.str && same_column(name.c_str(), column->change.str))
        {
          name= column->field_name.str;
          break;
        }
    return names;
  };
  for (const ForeignKey &key : keys)
    if (index_of_columns(altered, renamed(key.columns)) < 0)
      return refuse_dropped_index(thd, key, dropped);
  ForeignKeys to;
  if (int failed= foreign_keys_to(thd, name, &to))
    return failed;
  for (const ForeignKey &key : to)
    if (index_of_columns(altered, renamed(key.parent_columns)) < 0)
      return refuse_dropped_index(thd, key, dropped);
  return 0;
}

int find_referring_columns(THD *thd, const std::string &name, std::vector<std::string> *columns)
{
  ForeignKeys keys, to;
  if (int failed= foreign_keys_of(thd, name, &keys))
    return failed;
  if (int failed= foreign_keys_to(thd, name, &to))
    return failed;
  for (const ForeignKey &key : keys)
    columns->insert(columns->end(), key.columns.begin(), key.columns.end());
  for (const ForeignKey &key : to)
    columns->insert(columns->end(), key.parent_columns.begin(), key.parent_columns.end());
  return 0;
}

int refuse_altered_foreign_keys(THD *thd, const std::string &name, const TABLE *altered,
                                const Alter_inplace_info *info)
{
  ForeignKeys keys;
  if (int failed= foreign_keys_of(thd, name, &keys))
    return failed;
  if (int failed= drop_listed(*info->alter_info, &keys))
    return failed;
  if (!info->index_drop_count || !checks_foreign_keys(thd))
    return 0;
  return refuse_needed_index(thd, name, keys, altered, info);
}

int refuse_dropped_parent(THD *thd, const std::string &name)
{
  ForeignKeys keys;
  if (!thd || !checks_foreign_keys(thd) || is_copy_of_statement(name))
    return 0;
  if (int failed= foreign_keys_to(thd, name, &keys))
    return failed;
  const bool of_database= thd_sql_command(thd) == SQLCOM_DROP_DB;
  for (const ForeignKey &key : keys)
    if (key.child != name && !is_copy_of_statement(key.child) &&
        !(of_database && database_of(key.child) == database_of(name)))
    {
      note_foreign_key_error(thd, key, false);
      session_of(thd)->foreign_key_error.clear();
      return HA_ERR_ROW_IS_REFERENCED;
    }
  return 0;
}

int rename_foreign_keys(THD *thd, const std::string &from, const std::string &to)
{
  ForeignKeys keys;
  if (int failed= foreign_keys_of(thd, to, &keys))
    return failed;
  const SqlName old_name(from), new_name(to);
  bool any= false;
  for (ForeignKey &key : keys)
    if (const ulong number= generated_number(key.name, old_name.table))
    {
      key.name= new_name.table + "_ibfk_" + std::to_string(number);
      any= true;
    }
  return any ? set_foreign_keys(thd, {{to, keys}}) : 0;
}

int rename_altered_foreign_keys(THD *thd, const std::string &copy, const std::string &from, const std::string &to)
{
  ForeignKeys all;
  if (int failed= foreign_keys_of(thd, std::string(), &all))
    return failed;
  const SqlName old_name(from), new_name(to);
  std::map<std::string, ForeignKeys> by_child;
  std::set<std::string> changed;
  for (ForeignKey &key : all)
  {
    const bool of_copy= key.child == copy;
    const ulong number= of_copy ? generated_number(key.name, old_name.table) : 0;
    const bool refers= key.parent == from && (of_copy || !is_copy_of_statement(key.child));
    if (number)
      key.name= new_name.table + "_ibfk_" + std::to_string(number);
    if (refers)
      key.parent= to;
    if (number || refers)
      changed.insert(key.child);
    by_child[key.child].push_back(key);
  }
  std::vector<std::pair<std::string, ForeignKeys>> tables;
  for (const std::string &child : changed)
    tables.push_back({child, by_child[child]});
  return tables.empty() ? 0 : set_foreign_keys(thd, tables);
}

bool is_renamed_by_copy(THD *thd, const std::string &to, std::string *from)
{
  const Session *session= thd && thd_sql_command(thd) == SQLCOM_ALTER_TABLE ? session_of(thd) : nullptr;
  if (!session)
    return false;
  *from= altered_table(thd, session);
  return !from->empty() && *from != to;
}
