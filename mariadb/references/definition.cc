/* SPDX-License-Identifier: GPL-2.0-only */
/* Reading another table's definition (references/definition.h). */
#include "references/definition.h"
#include "table/foreign_key.h"
#include "table/meta.h"

Definition::Definition() : has_share(false), has_table(false) {}

Definition::~Definition()
{
  if (has_table)
    closefrm(&table);
  if (has_share)
    free_table_share(&share);
}

int Definition::open(THD *thd, const std::string &name)
{
  if (int failed= open_engine_table(thd, name))
    return failed;
  if (int failed= read_form(thd, name))
    return failed;
  codec.init(&table, room);
  return 0;
}

int Definition::open_engine_table(THD *thd, const std::string &name)
{
  ink_error error;
  if (open_table(slice_of(name), &engine_table, &error))
    return handler_error(thd, error);
  const MetaTree meta= meta_tree_of(slice_of(name), engine_table.get());
  if (!meta)
    return HA_ERR_CRASHED;
  uint64 images;
  if (int failed= meta_get_number(thd, meta, INK_STR("images"), &images))
    return failed;
  /* Made by a version whose keys may be other bytes. */
  if (images < IMAGE_VERSION)
    return HA_ERR_TABLE_NEEDS_UPGRADE;
  room= KeyRoom(ink_key_bytes_max(database));
  return 0;
}

int Definition::read_form(THD *thd, const std::string &name)
{
  char path[FN_REFLEN + 1];
  const SqlName names(name);
  build_table_filename(path, sizeof path - 1, names.database.c_str(), names.table.c_str(), "", 0);
  /* What the server says of a definition that it cannot read: the caller says what follows. */
  Dummy_error_handler silence;
  thd->push_internal_handler(&silence);
  init_tmp_table_share(thd, &share, names.database.c_str(), 0, names.table.c_str(), path);
  has_share= true;
  int failed= open_table_def(thd, &share, GTS_TABLE) ? HA_ERR_NO_SUCH_TABLE : 0;
  if (!failed && share.db_type() != inkstone_hton)
    failed= HA_ERR_NO_SUCH_TABLE;
  if (!failed && open_table_from_share(thd, &share, &empty_clex_str, 0, READ_ALL, 0, &table, true))
    failed= HA_ERR_NO_SUCH_TABLE;
  has_table= !failed;
  thd->pop_internal_handler();
  return failed;
}

const ink_tree *Definition::tree(int index) const
{
  if (static_cast<uint>(index) == table.s->primary_key)
    return ink_table_tree(engine_table.get(), 0);
  return ink_table_find_tree(engine_table.get(), slice_of(table.key_info[index].name));
}

std::vector<uint> Definition::indexes_by_age() const
{
  std::vector<uint> found;
  for (size_t at= 1; at < ink_table_tree_count(engine_table.get()); at++)
    for (uint i= 0; i < table.s->keys; i++)
      if (i != table.s->primary_key && tree(static_cast<int>(i)) == ink_table_tree(engine_table.get(), at))
        found.push_back(i);
  return found;
}

Field *find_column(const TABLE *form, const std::string &name)
{
  for (Field **field= form->field; *field; field++)
    if (same_column((*field)->field_name.str, name.c_str()))
      return *field;
  return nullptr;
}

static bool begins_with(const KEY &key, const std::vector<std::string> &columns)
{
  if (key.user_defined_key_parts < columns.size() || (key.flags & (HA_FULLTEXT | HA_SPATIAL)) ||
      key.algorithm == HA_KEY_ALG_LONG_HASH)
    return false;
  for (size_t i= 0; i < columns.size(); i++)
    if (!same_column(key.key_part[i].field->field_name.str, columns[i].c_str()) ||
        (key.key_part[i].key_part_flag & HA_PART_KEY_SEG))
      return false;
  return true;
}

int index_of_columns(const TABLE *form, const std::vector<std::string> &columns)
{
  for (uint i= 0; i < form->s->keys; i++)
    if (begins_with(form->key_info[i], columns))
      return static_cast<int>(i);
  return -1;
}

int oldest_index_of_columns(const TABLE *form, const std::vector<uint> &by_age,
                            const std::vector<std::string> &columns)
{
  const uint clustered= form->s->primary_key;
  if (clustered < form->s->keys && begins_with(form->key_info[clustered], columns))
    return static_cast<int>(clustered);
  for (uint i : by_age)
    if (begins_with(form->key_info[i], columns))
      return static_cast<int>(i);
  return -1;
}

static bool is_text(const Field *field)
{
  return (field->real_type() == MYSQL_TYPE_STRING || field->real_type() == MYSQL_TYPE_VARCHAR) &&
         field->charset() != &my_charset_bin && field->type_handler()->field_type() == field->real_type();
}

bool same_type(const Field *one, const Field *other)
{
  if ((one->flags & BLOB_FLAG) || (other->flags & BLOB_FLAG))
    return false;
  if (is_text(one) != is_text(other))
    return false;
  if (is_text(one))
    return one->charset() == other->charset() &&
           (one->real_type() == other->real_type() || !(one->charset()->state & MY_CS_NOPAD));
  if (one->real_type() != other->real_type() || one->type_handler() != other->type_handler())
    return false;
  if ((one->flags ^ other->flags) & UNSIGNED_FLAG)
    return false;
  return one->real_type() == MYSQL_TYPE_VARCHAR || one->pack_length() == other->pack_length();
}
