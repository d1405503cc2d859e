/* SPDX-License-Identifier: GPL-2.0-only */
/* Creating, dropping, renaming and emptying tables. Each is one durable, atomic step of the engine; what takes
   two is finished when the server starts (see finish_interrupted_ddl). */
#include "ha_inkstone.h"
#include "ddl.h"

/* cp1250_czech_cs is the one collation whose weights do not sort as it compares. */
static const Field *unsortable_column(const KEY &key)
{
  for (uint i= 0; i < key.user_defined_key_parts; i++)
  {
    const Field *field= key.key_part[i].field;
    if (!strcmp(field->charset()->coll_name.str, "cp1250_czech_cs"))
      return field;
  }
  return nullptr;
}

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
    if (const Field *field= unsortable_column(key))
    {
      my_error(ER_WRONG_KEY_COLUMN, MYF(0), "INKSTONE", field->field_name.str);
      return HA_ERR_UNSUPPORTED;
    }
  }
  return 0;
}

void warn_of_foreign_keys(THD *thd)
{
  List_iterator_fast<Key> keys(thd->lex->alter_info.key_list);
  while (Key *key= keys++)
    if (key->type == Key::FOREIGN_KEY)
    {
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION,
                          ER_THD(thd, ER_ILLEGAL_HA_CREATE_OPTION), "INKSTONE", "FOREIGN KEY");
      return;
    }
}

/* Row formats that InnoDB refuses, too. What is asked for with them cannot be given. */
bool has_refused_options(const HA_CREATE_INFO *info)
{
  return info->row_type == ROW_TYPE_FIXED || info->row_type == ROW_TYPE_PAGE;
}

int ha_inkstone::create(const char *path, TABLE *form, HA_CREATE_INFO *info)
{
  if (int failed= refuse(form))
    return failed;
  if (has_refused_options(info))
    my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "INKSTONE", "ROW_TYPE");
  if (has_refused_options(info) || info->index_file_name)
    return HA_WRONG_CREATE_OPTION;
  warn_of_foreign_keys(ha_thd());
  std::vector<ink_slice> trees;
  try
  {
    for (uint i= 0; i < form->s->keys; i++)
      if (i != form->s->primary_key)
        trees.push_back(slice_of(form->key_info[i].name));
    trees.push_back(INK_STR(META_TREE));
  }
  catch (const std::bad_alloc &)
  {
    return HA_ERR_OUT_OF_MEM;
  }
  ink_error error;
  TableName name(path);
  if (ink_create_table(database, name.slice(), trees.data(), trees.size(), &error))
    return handler_error(ha_thd(), error);
  if (!(info->used_fields & HA_CREATE_USED_AUTO) || !info->auto_increment_value)
    return 0;
  TableShare made;
  int failed= made.open(ha_thd(), path, form->s);
  return failed ? failed : made.set_auto_increment(ha_thd(), info->auto_increment_value);
}

int ha_inkstone::delete_table(const char *path)
{
  return ::drop_table(path);
}

/* Also the server's ddl log calls it, again after a crash: a table that is not there is no surprise. */
int drop_table(const char *path)
{
  ink_error error;
  TableName name(path);
  if (!ink_drop_table(database, name.slice(), &error))
    return 0;
  return error.code == INK_NOT_FOUND ? ENOENT : handler_error(current_thd, error);
}

int ha_inkstone::rename_table(const char *from, const char *to)
{
  ink_error error;
  TableName from_name(from), to_name(to);
  return ink_rename_table(database, from_name.slice(), to_name.slice(), &error)
             ? handler_error(ha_thd(), error)
             : 0;
}

int ha_inkstone::truncate()
{
  ink_error error;
  std::string name= share->name, replacement= name + REPLACEMENT;
  ink_slice old_name= {reinterpret_cast<const uint8_t *>(name.data()), name.size()};
  ink_slice new_name= {reinterpret_cast<const uint8_t *>(replacement.data()), replacement.size()};
  std::vector<ink_slice> trees;
  ink_table *old_table= share->engine_table();
  for (size_t i= 1; i < ink_table_tree_count(old_table); i++)
    trees.push_back(ink_tree_name(ink_table_tree(old_table, i)));
  if (ink_create_table(database, new_name, trees.data(), trees.size(), &error) ||
      ink_replace_table(database, new_name, old_name, &error))
    return handler_error(thd(), error);
  close_cursor();
  return share->reopen(thd(), table->s);
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

/* Tables that only a crash leaves: the server's temporary ones, and replacements that were not put in
   place. */
static bool add_leftover(void *context, ink_slice name)
{
  NameList *list= static_cast<NameList *>(context);
  std::string text(reinterpret_cast<const char *>(name.data), name.len);
  size_t ending= sizeof REPLACEMENT - 1;
  if (text.find("/" tmp_file_prefix "-temptable-") != std::string::npos ||
      (text.size() > ending && !text.compare(text.size() - ending, ending, REPLACEMENT)))
    list->names.push_back(text);
  return true;
}

static bool add_of_database(void *context, ink_slice name)
{
  NameList *list= static_cast<NameList *>(context);
  std::string text(reinterpret_cast<const char *>(name.data), name.len);
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
    if (ink_drop_table(database,
                       ink_slice{reinterpret_cast<const uint8_t *>(name.data()), name.size()}, &error))
      failed= handler_error(nullptr, error);
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
