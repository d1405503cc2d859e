/* SPDX-License-Identifier: GPL-2.0-only */
/* From rows of one table to keys of another (references/references.h). */
#include "references/references.h"

static std::vector<std::unique_ptr<Reference>> references_of(const ForeignKeys &keys, bool of_parent)
{
  std::vector<std::unique_ptr<Reference>> references;
  for (const ForeignKey &key : keys)
    references.emplace_back(new Reference(key, of_parent));
  return references;
}

int References::refresh(THD *thd, const std::string &table)
{
  if (are_fresh())
    return 0;
  const uint64 now= ink_references_version(database);
  ForeignKeys of, to;
  if (int failed= foreign_keys_of(thd, table, &of))
    return failed;
  if (int failed= foreign_keys_to(thd, table, &to))
    return failed;
  to_parents= references_of(of, false);
  to_children= references_of(to, true);
  version= now;
  known= true;
  return 0;
}

bool References::are_fresh() const
{
  return known && version == ink_references_version(database);
}

bool Reference::find_own(const TABLE *own, const std::vector<uint> &by_age)
{
  if (own_index < 0)
    own_index= oldest_index_of_columns(own, by_age, own_columns());
  return own_index >= 0;
}

int Reference::bind(THD *thd, const TABLE *own, const std::vector<uint> &by_age)
{
  if (bound)
    return 0;
  const std::vector<std::string> &other_columns= is_parent ? key.columns : key.parent_columns;
  find_own(own, by_age);
  std::unique_ptr<Definition> found(new Definition);
  if (int failed= found->open(thd, is_parent ? key.child : key.parent))
    return failed;
  other_index= oldest_index_of_columns(found->form(), found->indexes_by_age(), other_columns);
  if (own_index < 0)
    return HA_ERR_NO_SUCH_TABLE;
  if (other_index < 0 || !found->tree(other_index))
    return HA_ERR_WRONG_INDEX;
  /* Made or altered without a look at it (foreign_key_checks=0). */
  for (size_t i= 0; i < other_columns.size(); i++)
    if (!same_type(find_column(own, own_columns()[i]), find_column(found->form(), other_columns[i])))
      return HA_ERR_NO_SUCH_TABLE;
  other= std::move(found);
  bound= true;
  return 0;
}

bool Reference::has_null(const TableCodec &own, const uchar *record) const
{
  const std::vector<KeyPartCodec> &parts= own.indexes[own_index].parts();
  for (size_t i= 0; i < key.columns.size(); i++)
    if (parts[i].is_null(record))
      return true;
  return false;
}

bool Reference::differ(const TableCodec &own, const uchar *one, const uchar *other_record) const
{
  const std::vector<KeyPartCodec> &parts= own.indexes[own_index].parts();
  for (size_t i= 0; i < key.columns.size(); i++)
  {
    const Field *column= parts[i].column();
    if (parts[i].is_null(one) != parts[i].is_null(other_record))
      return true;
    if (!parts[i].is_null(one) &&
        column->cmp_binary(column->ptr_in_record(one), column->ptr_in_record(other_record)))
      return true;
  }
  return false;
}

bool Reference::put_image(Buffer &out, const TableCodec &own, const uchar *record) const
{
  const std::vector<KeyPartCodec> &from= own.indexes[own_index].parts();
  const std::vector<KeyPartCodec> &to= other->index_codec(other_index).parts();
  for (size_t i= 0; i < key.columns.size(); i++)
    if (to[i].put_value_of(out, from[i], record))
      return true;
  return false;
}

bool Reference::is_point() const
{
  const KeyCodec &index= other->index_codec(other_index);
  return index.is_unique() && index.parts().size() == key.columns.size();
}

static int find_point(THD *thd, ink_transaction *transaction, const ink_tree *tree, ink_slice key, bool *found)
{
  ink_error error;
  OwnedBytes value;
  bool locked;
  return ink_get_locking(transaction, tree, key, INK_LOCK_SHARED, INK_WAIT, value.to_fill(), found, &locked, &error)
             ? handler_error(thd, error)
             : 0;
}

static bool begins_with(ink_slice bytes, const Buffer &with)
{
  return bytes.len >= with.length() && !memcmp(bytes.data, with.data(), with.length());
}

int find_by_image(THD *thd, ink_transaction *transaction, const Reference &reference, const Buffer &image,
                  bool *found)
{
  const ink_tree *tree= reference.other->tree(reference.other_index);
  const KeyRoom &room= reference.other->key_room();
  *found= false;
  if (reference.is_point() && !room.is_cut(slice(image)))
    return find_point(thd, transaction, tree, slice(image), found);
  ink_error error;
  ink_range in_tree;
  Buffer end, high, scratch;
  if (end.assign(image.data(), image.length()))
    return HA_ERR_OUT_OF_MEM;
  const uint32_t behind= next_prefix(end) ? INK_EXCLUDED : INK_UNBOUNDED;
  if (room.tree_range({slice(image), slice(end), INK_INCLUDED, behind}, high, &in_tree))
    return HA_ERR_OUT_OF_MEM;
  OwnedCursor cursor;
  if (open_cursor(transaction, tree, in_tree, {false, INK_LOCK_SHARED, INK_WAIT, false, false}, &cursor, &error))
    return handler_error(thd, error);
  ink_row row;
  for (size_t count= 1; count && !*found;)
  {
    if (ink_cursor_fetch(cursor.get(), &row, 1, &count, &error))
      return handler_error(thd, error);
    if (count && !room.restore(&row, scratch))
      return HA_ERR_CRASHED;
    *found= count && begins_with(row.key, image);
  }
  return 0;
}
